"""Cases of the adapter of CrewAI, each in a process: `python -m tests.hosts.crewai_cases CASE DIRECTORY`."""
# ruff: noqa: BLE001, PT017, C901, PLR0912 - a program of one table of cases, in an environment without pytest

import asyncio
import functools
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false",
    CREWAI_STORAGE_DIR=sys.argv[2],  # the host keeps a file there, which processes at once break
)  # fmt: skip

import crewai.tools
from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.llms.base_llm import BaseLLM
from crewai.mcp import MCPServerStdio
from crewai.utilities.string_utils import sanitize_tool_name

from beforehand import Beforehand, Run, agent, current_operation
from beforehand.agent.hosted import HostedRun
from beforehand.errors import UsageError
from beforehand.hosts.crewai import BeforehandFeedback, durable
from beforehand.model.usage import Usage
from tests.hosts import casework
from tests.hosts.casework import CASE, SENT, SERVED, SERVER, approve, close, decline, mail, resolve

ASKED: list[int] = []
ANSWERS: list[Any] = []
COUNTED: list[Any] = []
"""The tokens of each crew, as the host sums them up."""


class Model(BaseLLM):
    """A model that makes these calls, one turn after the other, and then says what the tools returned."""

    turns: Any = ()
    native: bool = True

    def supports_function_calling(self) -> bool:
        return self.native

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        ASKED.append(len(messages))
        ended = [one for one in messages if one["role"] == "tool"]
        turn = sum(one["role"] == "assistant" for one in messages)
        if turn < len(self.turns):
            return self.turns[turn]
        said = "; ".join(one["content"] for one in ended)
        return said if self.native else "Thought: I now know the final answer\nFinal Answer: all paid"


def call(name: str, args: dict[str, Any], named: str = "") -> dict[str, Any]:
    return {"id": named, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}


@crewai.tools.tool
def pay(cents: int) -> Any:
    """Pay."""
    SENT.append(str(cents))
    if CASE == "parallel":
        assert (HostedRun.current(), current_operation().run) == (None, "r1")
    if CASE == "a failure that is a result":
        from crewai.tools.tool_failure import ToolFailure

        return ToolFailure(message="declined")
    if CASE == "a tool that raises":
        raise OSError("the connection broke")
    return f"paid {cents}"


class Service(BaseHTTPRequestHandler):
    """A service of models on loopback: it asks for a payment, and then says that it is done."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ASKED.append(len(asked["messages"]))
        ended = any(one["role"] == "tool" for one in asked["messages"])
        said: Any = {"role": "assistant", "content": "paid" if ended else None}
        said |= {} if ended else {"tool_calls": [call("pay", {"cents": 5}, "p-1")]}
        answer = {
            "id": f"chat-{len(ASKED)}", "object": "chat.completion", "created": 1, "model": "gpt-4o",
            "choices": [{"index": 0, "message": said, "finish_reason": "stop" if ended else "tool_calls"}],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 8},
            },
        }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        for name, value in {"content-type": "application/json", "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def own_model() -> Any:
    """A model of the host's own client, with a service that counts tokens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    return LLM(model="gpt-4o", provider="openai", api_key="none", base_url=address)


def crew_of(*turns: Any, native: bool = True, task: Any = None, model: Any = None, **settings: Any) -> Crew:
    model = model or Model(model="scripted", turns=turns, native=native)
    tools = [durable(mail), pay]
    desk = Agent(role="pay desk #1", goal="pay", backstory="a desk", llm=model, tools=tools)
    task = Task(description="Pay.", expected_output="paid", agent=desk, **(task or {}))
    return durable(durable(Crew(agents=[desk], tasks=[task], cache=True), **settings))


class Review(Flow[Any]):
    """A flow that asks a person between two steps."""

    @start()
    @human_feedback(message="May it be sent?", provider=BeforehandFeedback())
    def draft(self) -> str:
        return "the draft"

    @listen(draft)
    def send(self, result: Any) -> str:
        return f"sent: {result.feedback}"


def crew_with_server() -> Crew:
    """A crew whose only tools are those of an MCP server, which is a process."""
    command = MCPServerStdio(command=sys.executable, args=SERVER)
    own = next(iter(Agent(role="one", goal="g", backstory="b", mcps=[command]).get_mcp_tools([command]))).name
    name = sanitize_tool_name(own)
    model = Model(model="scripted", turns=[[call(name, {"cents": 5})]])
    desk = Agent(role="desk", goal="pay", backstory="a desk", llm=model, mcps=[command])
    task = Task(description="Pay.", expected_output="paid", agent=desk)
    settings: Any = {"approve": ("pya",)} if CASE.endswith("misspelled") else {}
    if CASE.endswith("approval"):  # by the name that the host has for it, and once by that which the model sees
        durable(desk, approve=(name,))
    if CASE.endswith("approval of its own name"):
        settings = {"approve": (own,)}
    settings |= {"clauses": {name: {"effect": "read"}}} if "read" in CASE else {}
    return durable(Crew(agents=[desk], tasks=[task]), **settings)


async def converse(task: str) -> Any:
    five = call("pay", {"cents": 5})
    both = crew_of([call("mail", {"to": "ann"}), call("pay", {"cents": 5}, "p")], [call("mail", {"to": "bob"})])
    match CASE:
        case "parallel":
            return str(await both.kickoff_async())
        case "natively asynchronous":
            return str(await both.akickoff())
        case "equal calls, and ids that repeat":
            calls = [five, five, call("pay", {"cents": 7}, "x"), call("mail", {"to": "ann"}, "x")]
            return str(await crew_of(calls).kickoff_async())
        case "equal calls, one after the other":
            return str(await crew_of([five], [five]).kickoff_async())
        case "answers in plain text":
            text = 'Thought: I pay\nAction: pay\nAction Input: {"cents": %d}'
            return str(await crew_of(text % 5, text % 6, native=False).kickoff_async())
        case "approval" | "approval declined":
            return str(await crew_of([five], approve=("pay",)).kickoff_async())
        case "arguments that do not fit":
            return str(await crew_of([call("pay", {"cents": "many"})]).kickoff_async())
        case "approval of a tool that is durable already":
            return str(await crew_of([call("mail", {"to": "ann"})], approve=("mail",)).kickoff_async())
        case "what was used" | "what was used, natively asynchronous":
            crew = crew_of(model=own_model())
            said = await (crew.kickoff_async() if CASE == "what was used" else crew.akickoff())
            COUNTED.append(said.token_usage.model_dump())
            return str(said)
        case "a guardrail in words":
            verdict = json.dumps({"valid": True, "feedback": None})
            crew = crew_of([five], task={"guardrail": "It is polite."})
            crew.tasks[0]._guardrail.llm.turns = [verdict]
            return str(await crew.kickoff_async())
        case _ if CASE.startswith(SERVED):
            crew = await asyncio.to_thread(crew_with_server)
            return str(await (crew.akickoff() if "natively" in CASE else crew.kickoff_async()))
        case "feedback of a flow":
            return str(await Review().kickoff_async())
        case "a tool that raises" | "a failure that is a result":
            try:
                return str(await crew_of([five]).kickoff_async())
            except BaseException:
                return "paid, surely"
        case "clauses that do not exist":
            return str(await crew_of([five], clauses={"pay": {"twice": True}}).kickoff_async())
        case _:
            return str(await crew_of([five]).kickoff_async())


@agent(tools=[mail, close])
async def desk(run: Run, task: str) -> Any:
    answer = await converse(task)
    ANSWERS.append(answer)
    if CASE in TWICE or CASE in (SERVED, f"{SERVED}, natively asynchronous"):
        await close()
    return answer


TWICE = {
    "parallel": ("mail to bob", ["5", "ann", "bob"], 3),
    "natively asynchronous": ("mail to bob", ["5", "ann", "bob"], 3),
    "equal calls, and ids that repeat": ("paid 5; paid 5; paid 7; mail to ann", ["5", "5", "7", "ann"], 2),
    "equal calls, one after the other": ("paid 5; paid 5", ["5", "5"], 3),
    "answers in plain text": ("all paid", ["5", "6"], 3),
    "a guardrail in words": ("paid 5", ["5"], 3),
    "what was used": ("paid", ["5"], 2),
    "what was used, natively asynchronous": ("paid", ["5"], 2),
}
"""Cases whose run is started twice: how both answers end, what was sent, and how often a model was asked."""


run, refused = functools.partial(casework.run, desk), functools.partial(casework.refused, desk)


async def feedback(app: Beforehand) -> None:
    await app.service.answer("r1/draft/ask#1", "yes, today", by="ann")


async def served() -> None:
    """What agents with the tools of an MCP server answer."""
    match CASE.removeprefix(SERVED).strip(", "):
        case "" | "natively asynchronous":
            assert "r1/close#1" in await run()
            assert "r1/close#1" in await run()
            assert ANSWERS == ["paid 5"] * 2, ANSWERS
        case "misspelled":
            await refused("approve= names tools that are not there: pya")
            return
        case "approval" | "approval of its own name":
            assert "(cents=5) be sent?" in await run(approve)
            await run()
            assert ANSWERS == ["paid 5"], ANSWERS
        case "an error" | "no answer":
            assert "waits: run r1 waits: r1/call_" in await run(resolve)
            await run()
            assert ANSWERS == ["paid, says ann"], ANSWERS
        case "an error of a read":
            await run()
            assert "an error" in ANSWERS[0], ANSWERS
    casework.paid_at_server()


def unrecorded() -> None:
    remembers, plans, keeps = crew_of(), crew_of(), crew_of()
    remembers.memory, plans.planning = True, True
    keeps.checkpoint = object()
    named = crew_of()
    named.agents[0].mcps = ["https://example.com/mcp"]
    for text, wrong in {
        "memory=True": lambda: durable(remembers),
        "planning=True": lambda: durable(plans),
        "checkpoint=": lambda: durable(keeps),
        "that are not there: pya": lambda: crew_of(approve=("pya",)),
        "that are not there: sale": lambda: crew_of(clauses={"sale": {"effect": "read"}}),
        "names an MCP server by a text": lambda: durable(named),
        "human_input=True": lambda: crew_of(task={"human_input": True}),
        "a dict cannot be made durable": lambda: durable({}),
    }.items():
        try:
            wrong()
        except UsageError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


async def main() -> None:
    match CASE:
        case _ if CASE.startswith(SERVED):
            await served()
        case _ if CASE in TWICE:
            for _ in range(2):
                assert "r1/close#1" in await run()
            answer, *counts = TWICE[CASE]
            assert ANSWERS[0] == ANSWERS[1], ANSWERS
            assert ANSWERS[0].endswith(answer), ANSWERS
            assert [sorted(SENT), len(ASKED)] == counts, (SENT, ASKED)
            if COUNTED:
                each: Any = {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 60, "reasoning_tokens": 8}
                each |= {"model": "gpt-4o", "service": "openai"}
                found = await casework.used(desk, "gpt-4o")
                assert found == [Usage(**each, request="chat-1"), Usage(**each, request="chat-2")], found
                assert COUNTED[0] == COUNTED[1], COUNTED  # a recorded answer counts as the answer did
                assert COUNTED[0]["total_tokens"] == 240, COUNTED
        case "approval":
            assert "may pay(cents=5) be sent?" in await run(approve)
            assert [await run(), SENT] == ["paid 5", ["5"]]
        case "approval of a tool that is durable already":
            assert "may mail(to=ann) be sent?" in await run(approve)
            assert [await run(), SENT] == ["mail to ann", ["ann"]]
        case "approval declined":
            assert "may pay(cents=5) be sent?" in await run(decline)
            assert "too much" in await run()
            assert SENT == []
        case "arguments that do not fit":
            assert "cents" in await run()
            assert SENT == []
        case "feedback of a flow":
            assert "May it be sent?: the draft" in await run(feedback)
            assert await run() == "sent: yes, today"
        case "a tool that raises" | "a failure that is a result":
            assert (await run(resolve)).startswith("waits: run r1 waits: r1/call_")
            assert [await run(), SENT] == ["paid, says ann", ["5"]]
        case "clauses that do not exist":
            await refused("does not take twice")
        case "what no record holds":
            unrecorded()
        case "outside a run":
            assert [await converse("go"), SENT] == ["paid 5", ["5"]]


if __name__ == "__main__":
    asyncio.run(main())
