"""An agent of a framework with a model that answers at once: processor time of its turns and calls, or memory.

`python hosted.py KIND [--memory]` prints JSON: the processor time of a turn with one call and of one with ten more,
and with `--memory` the resident memory after 100 calls and after 1,000.
"""

import argparse
import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TURNS, MORE, ROUNDS = 6, 11, 9
CALLS_OF_A_RUN = 10
Talk = Callable[[int, int], Awaitable[None]]  # this many turns, with this many calls each


def pay(number: int) -> str:
    """Pay."""
    return f"paid {number}"


# --- Pydantic AI ------------------------------------------------------------------------------------------------------


def pydantic_agent(tool: Any, capabilities: list[Any]) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages: list[Any], _: Any) -> ModelResponse:
        turns, calls = json.loads(messages[0].parts[0].content)
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        if turn == turns:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("pay", {"number": at}, f"c{turn}_{at}") for at in range(calls)])

    return Agent(FunctionModel(model), name="payer", tools=[tool], capabilities=capabilities)


async def apay(number: int) -> str:
    """Pay."""
    return f"paid {number}"


async def pydantic_plain(_: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from pydantic_ai import Tool
    from pydantic_ai.usage import UsageLimits

    host = pydantic_agent(Tool(apay, name="pay"), [])
    limits = UsageLimits(request_limit=None)
    await measure(lambda turns, calls: host.run(json.dumps([turns, calls]), usage_limits=limits))


async def pydantic_beforehand(place: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from pydantic_ai import Tool

    from beforehand.hosts.pydantic_ai import BeforehandDurability

    host = pydantic_agent(Tool(apay, name="pay"), [BeforehandDurability()])
    await in_beforehand(place, measure, host.run)


async def pydantic_dbos(place: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from dbos import DBOS
    from dbos_sqlite import configuration
    from pydantic_ai import Tool
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    DBOS(config=configuration(place / "dbos.db", wal=True))
    host = pydantic_agent(Tool(DBOS.step()(apay), name="pay"), [DBOSDurability()])

    @DBOS.workflow()
    async def work(task: str) -> str:
        return str((await host.run(task)).output)

    DBOS.launch()
    try:
        await measure(lambda turns, calls: work(json.dumps([turns, calls])))
    finally:
        DBOS.destroy()


# --- LangGraph --------------------------------------------------------------------------------------------------------


def langchain_agent(**settings: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
            turns, calls = json.loads(messages[0].content)
            turn = sum(isinstance(one, AIMessage) for one in messages)
            made = [{"name": "pay", "args": {"number": at}, "id": f"c{turn}_{at}"} for at in range(calls)]
            said = AIMessage("done") if turn == turns else AIMessage("", tool_calls=made)
            return ChatResult(generations=[ChatGeneration(message=said)])

    return create_agent(Scripted(), [pay], **settings)


async def langgraph_beforehand(place: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from beforehand.hosts.langchain import BeforehandMiddleware

    graph = langchain_agent(middleware=[BeforehandMiddleware()])
    limit = {"recursion_limit": 10_000}
    await in_beforehand(place, measure, lambda task: graph.ainvoke({"messages": [("user", task)]}, limit))


async def langgraph_checkpointer(place: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(place / "langgraph.db")) as saver:
        graph = langchain_agent(checkpointer=saver)
        number = 0

        async def talk(turns: int, calls: int) -> None:
            nonlocal number
            number += 1
            config = {"configurable": {"thread_id": f"t{number}"}, "recursion_limit": 10_000}
            graph.invoke({"messages": [("user", json.dumps([turns, calls]))]}, config, durability="sync")

        await measure(talk)


# --- OpenAI Agents ----------------------------------------------------------------------------------------------------


async def openai_beforehand(place: Path, measure: Callable[[Talk], Awaitable[None]]) -> None:
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from beforehand.hosts.openai_agents import durable

    class Scripted(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002, ARG002 - names of the SDK
            items = [{"content": input}] if isinstance(input, str) else input
            turns, calls = json.loads(items[0]["content"])
            turn = sum(item.get("type") == "function_call" for item in items) // calls
            made: list[Any] = [
                ResponseFunctionToolCall(
                    call_id=f"c{turn}_{at}", name="pay", arguments=json.dumps({"number": at}), type="function_call"
                )
                for at in range(calls)
            ]
            text = ResponseOutputText(text="done", annotations=[], type="output_text", logprobs=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said] if turn == turns else made, usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    host = durable(Agent(name="payer", model=Scripted(), tools=[function_tool(pay)]))
    quiet = RunConfig(tracing_disabled=True)
    await in_beforehand(place, measure, lambda task: Runner.run(host, task, run_config=quiet, max_turns=1000))


# --- measuring --------------------------------------------------------------------------------------------------------


async def in_beforehand(
    place: Path, measure: Callable[[Talk], Awaitable[None]], converse: Callable[[str], Any]
) -> None:
    from beforehand import Beforehand, Run, agent

    @agent
    async def desk(run: Run, task: str) -> str:  # noqa: ARG001 - an agent takes its run
        await converse(task)
        return "done"

    async with Beforehand(place / "desk.db", agents=[desk], recover=False) as app:
        number = 0

        async def talk(turns: int, calls: int) -> None:
            nonlocal number
            number += 1
            await app.run(desk, json.dumps([turns, calls]), run_id=f"r{number}")

        await measure(talk)


async def processor_time(talk: Talk) -> None:
    """Print the time of a turn with one call, and of one with ten more, in milliseconds: the lowest of the rounds."""
    await talk(TURNS, 2)  # warm
    few, many = [], []
    for _ in range(ROUNDS):
        few.append(await spent_ms(talk, 1))
        many.append(await spent_ms(talk, MORE))
    print(json.dumps({"few_ms": min(few), "many_ms": min(many)}))


async def spent_ms(talk: Talk, calls: int) -> float:
    gc.collect()
    before = time.process_time()
    await talk(TURNS, calls)
    return (time.process_time() - before) / TURNS * 1000


async def memory(talk: Talk) -> None:
    """Print the resident memory after 100 calls, and after 1,000."""
    for _ in range(100 // CALLS_OF_A_RUN):
        await talk(CALLS_OF_A_RUN, 1)
    few = resident_mib()
    for _ in range(900 // CALLS_OF_A_RUN):
        await talk(CALLS_OF_A_RUN, 1)
    print(json.dumps({"few_mib": few, "many_mib": resident_mib()}))


def resident_mib() -> float:
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


KINDS = {
    "pydantic-plain": pydantic_plain, "pydantic-beforehand": pydantic_beforehand, "pydantic-dbos": pydantic_dbos,
    "langgraph-beforehand": langgraph_beforehand, "langgraph-checkpointer": langgraph_checkpointer,
    "openai-beforehand": openai_beforehand,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(KINDS[options.kind](Path(made), memory if options.memory else processor_time))


if __name__ == "__main__":
    main()
