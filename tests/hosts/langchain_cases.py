"""Cases of the adapter of LangChain, each in a process: `python -m tests.hosts.langchain_cases CASE DIRECTORY`."""
# ruff: noqa: BLE001, C901, PLR0912, PLR0915, PT017 - a program of one table of cases, in an environment without pytest

import asyncio
import functools
import os
import signal
import subprocess
import sys
from typing import Annotated, Any, NotRequired

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from beforehand import Beforehand, Key, Run, agent, current_operation, current_run, tool
from beforehand.errors import ReplayDiverged
from beforehand.hosts.langchain import BeforehandMiddleware
from beforehand.loop import Route, RouteModel
from beforehand.model.usage import Usage
from beforehand.testing import World
from tests.hosts import casework
from tests.hosts.casework import CASE, DIRECTORY, SENT, decline

KILL = len(sys.argv) > 3
ASKED: list[int] = []
MODEL_NODE = "a graph with a model node"
"""How the names of cases begin whose model draws the ids of its calls, as real ones do."""


class Model(BaseChatModel):
    """A model that makes these calls, one turn after the other, and then says what the tools returned."""

    turns: Any
    down: bool = False
    model_name: str = "m-1"  # as the models of the host have it
    name: str | None = "desk"  # as a step of a chain

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        ASKED.append(len(messages))
        if self.down:
            raise casework.Down
        turn = sum(isinstance(one, AIMessage) for one in messages)
        said = "; ".join(str(one.content) for one in messages if isinstance(one, ToolMessage))
        calls = self.turns[turn] if turn < len(self.turns) else []
        wrong, drawn = CASE == "ids that cannot name a step", CASE.startswith(MODEL_NODE)
        ids = [
            "a/b" if wrong else f"call_{turn}_{at}{os.urandom(4).hex() if drawn else ''}" for at in range(len(calls))
        ]
        named = [{"name": name, "args": args, "id": one} for one, (name, args) in zip(ids, calls, strict=True)]
        answer = AIMessage("" if named else said, tool_calls=named)
        if CASE == "what was used":
            details: Any = {"input_token_details": {"cache_read": 60}, "output_token_details": {"reasoning": 8}}
            answer.usage_metadata = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, **details}
            answer.response_metadata = {"model_name": "m-1", "model_provider": "openai", "id": "r-1"}
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool(idempotency=Key.forever() if CASE == "explored" else None)
async def mail(to: str) -> str:
    """Send a mail."""
    SENT.append(current_operation().key[:0] + to)
    return f"mail to {to}"


@tool(effect="read")
async def seats(row: int) -> list[Any]:
    """What is free in a row: values, or the blocks of a message."""
    return [[], [{"type": "text", "text": "none"}], [False, row, "ä"]][row]


class Sum(BaseModel):
    """What was paid in all."""

    cents: int


@tool(effect="read")
async def total() -> Sum:
    """The sum of what was paid."""
    return Sum(cents=5)


@tool(idempotency=Key.forever())
async def book(cents: int) -> str:
    """Pay at a service that knows a key again."""
    with (DIRECTORY / "witness").open("a") as file:
        file.write(f"{cents} {current_operation().key}\n")
    if KILL and cents == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {cents}"


def pay(cents: int) -> str:
    """Pay."""
    SENT.append(str(cents))
    return f"paid {cents}"


def asking(cents: int) -> str:
    """Pay what a person says."""
    said = interrupt({"ask": "how much?", "at most": cents})
    sure = interrupt("sure?")
    SENT.append(f"{said['cents']}")
    if CASE == "an interrupt, killed after the effect":
        with (DIRECTORY / "witness").open("a") as file:
            file.write(f"{said['cents']}\n")
        if KILL:
            os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {said['cents']}, {sure}"


def commanding(cents: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Pay, and note it in the state."""
    SENT.append(str(cents))
    return Command(update={"paid": cents, "messages": [ToolMessage(f"paid {cents}", tool_call_id=tool_call_id)]})


class Noted(AgentMiddleware):
    """The state of a graph that has one more field."""

    class state_schema(AgentState):  # noqa: N801 - the name is the host's
        paid: NotRequired[int]


def graph(*turns: Any, **more: Any) -> Any:
    settings: dict[str, Any] = {"approve": ("pay",)} if CASE in {"approval declined", "approved outside a run"} else {}
    if CASE == "approve names no tool":
        settings = {"approve": ("pya",)}
    if CASE == "explored":
        settings = {"clauses": {"pay": {"effect": "read"}}}
    if CASE == "a route":
        down = RouteModel(Model(turns=turns, down=True), name="down")
        settings = {"route": Route([down, Model(turns=turns)])}
    return create_agent(Model(turns=turns), [mail, pay], middleware=[BeforehandMiddleware(**settings)], **more)


def own_graph() -> Any:
    """A graph without an agent: a tools node, and a plain node that names its effect."""

    async def choose(_: Any) -> Any:
        calls = [{"name": "pay", "args": {"cents": cents}, "id": f"c{cents}"} for cents in (5, 6)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    async def close(_: Any) -> Any:
        with current_run().step("last"):
            return {"messages": [AIMessage(await mail("ann"))]}

    made = StateGraph(MessagesState)
    made.add_node("choose", choose)
    made.add_node("tools", ToolNode([pay], awrap_tool_call=BeforehandMiddleware().awrap_tool_call))
    made.add_node("close", close)
    for one, other in ((START, "choose"), ("choose", "tools"), ("tools", "close"), ("close", END)):
        made.add_edge(one, other)
    return made.compile()


def with_model_node() -> Any:
    """A graph of a node that asks the model and a node of its tools."""
    scripted = Model(turns=([("mail", {"to": "ann"}), ("book", {"cents": 5})], [("book", {"cents": 6})]))
    route = Route([RouteModel(Model(turns=[], down=True), name="down"), scripted]) if "route" in CASE else None
    ours = BeforehandMiddleware(differs="note" if "on purpose" in CASE else "diverge", route=route)
    model = ours.recorded_model(scripted, [mail, book])

    async def choose(state: Any) -> Any:
        asked = [*([("system", f"It is {os.urandom(4).hex()}.")] if "prompt" in CASE else []), *state["messages"]]
        answer = asyncio.to_thread(model.invoke, asked) if "thread" in CASE else model.ainvoke(asked)
        return {"messages": [await answer]}

    made = StateGraph(MessagesState)
    made.add_node("choose", choose)
    made.add_node("tools", ToolNode([mail, book], awrap_tool_call=ours.awrap_tool_call))
    made.add_edge(START, "choose")
    made.add_conditional_edges("choose", tools_condition)
    made.add_edge("tools", "choose")
    return made.compile()


GO = {"messages": [("user", "go")]}


async def converse(task: str) -> Any:
    match CASE:
        case "parallel" | "outside a run" | "ids that cannot name a step" | "explored":
            ended = await graph([("mail", {"to": "ann"}), ("pay", {"cents": 5})], [("mail", {"to": "bob"})]).ainvoke(GO)
        case "arguments that do not fit":
            ended = await graph([("mail", {"to": 5}), ("pay", {"cents": "many"})]).ainvoke(GO)
        case "no such tool":
            ended = await graph([("nothing", {})]).ainvoke(GO)
        case "structured answer":
            made = graph([("pay", {"cents": 5})], [("Sum", {"cents": 5})], response_format=Sum)
            return (await made.ainvoke(GO))["structured_response"].cents
        case "a checkpointer":
            from langgraph.checkpoint.memory import InMemorySaver

            made = graph([("pay", {"cents": 5})], checkpointer=InMemorySaver())
            ended = await made.ainvoke(GO, {"configurable": {"thread_id": "t1"}})
        case "a thread without a checkpointer":
            ended = await graph([("pay", {"cents": 5})]).ainvoke(GO, {"configurable": {"thread_id": "t1"}})
        case "in a thread":
            ended = await asyncio.to_thread(graph([("mail", {"to": "ann"}), ("pay", {"cents": 5})]).invoke, GO)
        case "on the loop":
            ended = graph([("pay", {"cents": 5})]).invoke(GO)
        case "an interrupt" | "an interrupt, killed after the effect":
            made = create_agent(
                Model(turns=[[("asking", {"cents": 9})]]), [asking], middleware=[BeforehandMiddleware()]
            )
            ended = await made.ainvoke(GO)
        case "a command":
            middleware = [Noted(), BeforehandMiddleware()]
            made = create_agent(Model(turns=[[("commanding", {"cents": 5})]]), [commanding], middleware=middleware)
            ended = await made.ainvoke(GO)
            return [ended["messages"][-1].content, ended["paid"]]
        case "values":
            model = Model(turns=[[("seats", {"row": row}) for row in range(3)] + [("total", {})]])
            ended = await create_agent(model, [seats, total], middleware=[BeforehandMiddleware()]).ainvoke(GO)
            return [one.content for one in ended["messages"] if isinstance(one, ToolMessage)]
        case "a human in the loop":
            asks = HumanInTheLoopMiddleware({"pay": True})
            made = create_agent(
                Model(turns=[[("pay", {"cents": 5})]]), [pay], middleware=[asks, BeforehandMiddleware()]
            )
            ended = await made.ainvoke(GO)
        case "a model that is no chat model":
            BeforehandMiddleware().recorded_model(Model(turns=[]).bind(stop=["."]))
        case _ if CASE.startswith(MODEL_NODE):
            ended = await with_model_node().ainvoke(GO)
        case "a graph of your own":
            return [one.content for one in (await own_graph().ainvoke(GO))["messages"][2:]]
        case "two conversations":
            one = await graph([("pay", {"cents": 5})]).ainvoke(GO)
            ended = await graph([("pay", {"cents": 6})]).ainvoke(GO)
            return [one["messages"][-1].content, ended["messages"][-1].content]
        case _:
            ended = await graph([("pay", {"cents": 5})]).ainvoke(GO)
    return ended["messages"][-1].content


@agent(tools=[mail, book, seats, total])
async def desk(run: Run, task: str) -> Any:
    return await converse(task)


run, refused = functools.partial(casework.run, desk), functools.partial(casework.refused, desk)


async def killed() -> int:
    """The status of a process that kills itself in this case."""
    module = ["-W", "ignore", "-m", "tests.hosts.langchain_cases"]
    command = [sys.executable, *module, CASE, str(DIRECTORY), "kill"]
    return (await asyncio.to_thread(subprocess.run, command, check=False)).returncode


async def nodes() -> None:
    """The effects of a graph of one's own happen once, and are named by the calls and by the node."""
    assert [await run(), await run()] == [["paid 5", "paid 6", "mail to ann"]] * 2
    assert (sorted(SENT[:2]), SENT[2:]) == (["5", "6"], ["ann"])
    async with Beforehand(DIRECTORY / "desk.db", agents=[desk], recover=False) as app:
        steps = sorted((await app.service.history("r1")).operations)
    assert steps == ["c5/pay#1", "c6/pay#1", "last/mail#1"], steps


SHOWN = ["[]", [{"type": "text", "text": "none"}], '[false, 2, "ä"]', '{"cents":5}']
"""The values of declared tools as the model is shown them."""
REFUSED = {
    "a checkpointer": "without checkpointer=",
    "a human in the loop": 'BeforehandMiddleware(approve=("pay",)) in place of HumanInTheLoopMiddleware',
    "a model that is no chat model": "recorded_model(model, [pay])",
    "approve names no tool": "pya. Known: nothing was sent; the tools are mail, pay. Next: write pay",
    "on the loop": "agent.ainvoke",
}
"""Cases that end with an error of this text, before an effect."""


async def continued() -> None:
    """A run of a graph with a model node goes on after it was killed, and no call comes twice."""
    assert await killed() == -9
    if f"{MODEL_NODE}, a prompt with the time" == CASE:
        await refused('(differs="note" of its adapter accepts that)', ReplayDiverged)
        return
    assert [await run(), await run()] == ["mail to ann; paid 5; paid 6"] * 2
    paid = (DIRECTORY / "witness").read_text().splitlines()
    assert (len(paid), len({*paid}), SENT, len({*ASKED})) == (3, 2, [], 1), (paid, SENT, ASKED)  # one turn was new


async def main() -> None:
    match CASE:
        case _ if CASE.startswith(MODEL_NODE):
            await continued()
        case "values":
            assert [await run(), await run()] == [SHOWN] * 2
        case _ if CASE in REFUSED:
            await refused(REFUSED[CASE])
        case "parallel" | "ids that cannot name a step":
            said = [await run(), await run()]
            assert said == ["mail to ann; paid 5; mail to bob"] * 2, said
            assert (sorted(SENT), len(ASKED)) == (["5", "ann", "bob"], 3)
        case "approval declined":
            assert "may pay(cents=5) be sent?" in await run(decline)
            assert "too much" in await run()
            assert SENT == []
        case "arguments that do not fit":
            said = await run()
            assert "to" in said, said
            assert "cents" in said, said
            assert (said, SENT) == (await run(), [])
        case "no such tool":
            assert "nothing is not a valid tool" in await run()
        case "structured answer":
            assert [await run(), await run()] == [5, 5]
        case "a thread without a checkpointer":
            assert [await run(), await run(), SENT] == ["paid 5", "paid 5", ["5"]]
        case "in a thread":
            assert [await run(), await run()] == ["mail to ann; paid 5"] * 2
            assert sorted(SENT) == ["5", "ann"]
        case "explored":
            await asyncio.to_thread(World().explore, desk, "go")  # at each boundary, the world sees each effect once
        case "a graph of your own":
            await nodes()
        case "two conversations":
            assert [await run(), await run()] == [["paid 5", "paid 6"]] * 2
            assert SENT == ["5", "6"]
        case "an interrupt":
            asked = await run(lambda app: app.service.answer("r1/call_0_0#2/ask#1", '{"cents": 7}', by="ann"))
            assert "how much?" in asked, asked
            assert "sure?" in await run(lambda app: app.service.answer("r1/call_0_0#4/ask#1", "yes", by="ann"))
            assert [await run(), await run()] == ["paid 7, yes"] * 2
            assert (SENT, len(ASKED)) == (["7"], 2)
        case "an interrupt, killed after the effect":
            assert "how much?" in await run(
                lambda app: app.service.answer("r1/call_0_0#2/ask#1", '{"cents": 7}', by="ann")
            )
            assert "sure?" in await run(lambda app: app.service.answer("r1/call_0_0#4/ask#1", "yes", by="ann"))
            assert await killed() == -9

            async def happened(app: Beforehand) -> None:
                await app.service.resolve("r1/call_0_0#5/asking#1", "happened", by="ann", result="paid 7, says ann")

            assert "an attempt may have landed" in await run(happened)
            assert [await run(), (DIRECTORY / "witness").read_text(), SENT] == ["paid 7, says ann", "7\n", []]
        case "what was used":
            assert [await run(), await run()] == ["paid 5"] * 2
            stated = Usage(100, 20, 0.0, 60, 0, 8, model="m-1", service="openai", request="r-1")
            assert await casework.used(desk, "m-1") == [stated] * 2
        case "a command":
            assert [await run(), await run()] == [["paid 5", 5]] * 2
            assert SENT == ["5"]
        case "outside a run" | "approved outside a run":
            try:
                await converse("go")
            except Exception as error:
                assert "was called outside a run" in str(error), error
                assert CASE == "outside a run" or SENT == [], SENT
            else:
                raise AssertionError


if __name__ == "__main__":
    asyncio.run(run() if KILL else casework.routed(desk, "m-1") if CASE == "a route" else main())
