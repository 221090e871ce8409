"""Cases of the adapter of Google ADK, each in a process: `python -m tests.hosts.google_adk_cases CASE DIRECTORY`."""
# ruff: noqa: BLE001, C901, PLR0912, PLR0915, PT017 - a program of one table of cases, in an environment without pytest

import asyncio
import functools
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent, ParallelAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, ToolContext, exit_loop
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.genai import types
from mcp import StdioServerParameters

from beforehand import Run, agent
from beforehand.errors import ContractError
from beforehand.hosts.google_adk import BeforehandPlugin
from beforehand.model.usage import Usage
from beforehand.testing import World
from tests.hosts import casework
from tests.hosts.casework import CASE, DIRECTORY, SENT, SERVED, SERVER, approve, close, decline, mail, resolve

LONG = "x" * 195
ASKED: list[str] = []
SEEN: list[str] = []
ANSWERS: list[Any] = []


def call(name: str, args: dict[str, Any], named: str | None = None) -> types.Part:
    made = types.FunctionCall(name=name, args=args, id=named)
    return types.Part(function_call=made, thought_signature=b"\xff signed")


class Model(BaseLlm):
    """A model that makes these calls, one turn after the other, and then says what the tools returned."""

    turns: Any = ()
    fails: bool = False

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        ASKED.append(self.model)
        if self.fails:
            raise ValueError("the model is gone")
        parts = [part for one in llm_request.contents for part in one.parts]
        assert all(part.thought_signature == b"\xff signed" for part in parts if part.function_call), parts
        ended = [part.function_response.response for part in parts if part.function_response]
        turn = sum(one.role == "model" for one in llm_request.contents)
        said = "; ".join(str(one.get("result", one.get("error", one))) for one in ended)
        if turn < len(self.turns):
            counted = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=100, candidates_token_count=12, thoughts_token_count=8, cached_content_token_count=60
            )
            content = types.Content(role="model", parts=self.turns[turn])
            yield LlmResponse(content=content, usage_metadata=counted, model_version="m-1")
            return
        if stream:
            for word in said.split():
                part = types.Part(text=word + " ")
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=said or "nothing")]))


def pay(cents: int) -> str:
    """Pay."""
    SENT.append(str(cents))
    return f"paid {cents}"


def note(text: str, tool_context: ToolContext) -> str:
    """Write the text into the state of the session."""
    SENT.append(text)
    tool_context.state["noted"] = text
    return "noted"


def careful(cents: int, tool_context: ToolContext) -> str:
    """Pay, once a person has confirmed it."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="is that much right?")
        return "waits"
    SENT.append(str(cents))
    return f"paid {cents}"


def nothing() -> None:
    """Do something that has no result."""
    SENT.append("nothing")


def leave(tool_context: ToolContext) -> str:
    """Hand over to the other agent."""
    tool_context.actions.transfer_to_agent = "second"
    return "handed over"


def guard(tool: Any, args: dict[str, Any], tool_context: Any) -> Any:
    return {"error": "too much"} if args.get("cents", 0) > 100 else None


async def observed(tool: Any, args: dict[str, Any], tool_context: Any, tool_response: Any) -> None:
    SEEN.append(f"{tool.name} {tool_response}")


class Watch(BasePlugin):
    """A second plugin, after ours, which the host would skip."""

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> None:
        SEEN.append(f"before {tool.name}")


def desk_of(*turns: list[types.Part], **more: Any) -> LlmAgent:
    settings = {"model": Model(model="desk", turns=turns), "tools": [mail, pay, note, careful, nothing], **more}
    return LlmAgent(name="desk", instruction="Noted: {noted?}", **settings)


def runner_of(root: Any, *plugins: BasePlugin, **settings: Any) -> InMemoryRunner:
    return InMemoryRunner(app=App(name="desk", root_agent=root, plugins=[BeforehandPlugin(**settings), *plugins]))


async def said(runner: InMemoryRunner, **more: Any) -> str:
    events = await runner.run_debug("go", quiet=True, **more)
    texts = [part.text for event in events if event.content for part in event.content.parts if part.text]
    return texts[-1] if texts else ""


async def converse(task: str) -> Any:
    ann, five = call("mail", {"to": "ann"}), call("pay", {"cents": 5})
    match CASE:
        case "parallel" | "outside a run" | "every boundary":
            return await said(runner_of(desk_of([ann, call("pay", {"cents": 5}, "p")], [call("mail", {"to": "bob"})])))
        case "ids that repeat, or cannot name a step":
            two, three = call("pay", {"cents": 6}, "a/b"), call("pay", {"cents": 7}, "x")
            return await said(runner_of(desk_of([call("pay", {"cents": 5}, "x"), two, three])))
        case "confirmation" | "confirmation declined":
            asks = FunctionTool(pay, require_confirmation=True)
            return await said(runner_of(desk_of([five], tools=[asks])))
        case "confirmation of a declared tool":
            return await said(runner_of(desk_of([ann], tools=[FunctionTool(mail, require_confirmation=True)])))
        case "a tool that asks for a confirmation":
            return await said(runner_of(desk_of([call("careful", {"cents": 5})])))
        case "state of the session":
            runner = runner_of(desk_of([call("note", {"text": "x"})], [call("note", {"text": "y"})]))
            answer = await said(runner)
            session = (await runner.session_service.list_sessions(app_name="desk", user_id="debug_user_id")).sessions[0]
            return [answer, session.state["noted"]]
        case "no result":
            return await said(runner_of(desk_of([call("nothing", {})])))
        case "a transfer":
            second = LlmAgent(name="second", model=Model(model="second", turns=[[five]]), tools=[pay])
            hand = call("leave", {})
            return await said(runner_of(desk_of([hand], tools=[leave], sub_agents=[second])))
        case "agents that are tools, in parallel":
            inner = LlmAgent(name="payer", model=Model(model="payer", turns=[[five]]), tools=[pay], description="Pay.")
            both = [call("payer", {"request": "a"}, "a"), call("payer", {"request": "b"}, "b")]
            return await said(runner_of(desk_of(both, tools=[AgentTool(inner)])))
        case "agents beside each other":
            two = [
                LlmAgent(name=name, model=Model(model=name, turns=[[call("mail", {"to": name})]]), tools=[mail])
                for name in ("ann", "bob")
            ]
            await said(runner_of(ParallelAgent(name="both", sub_agents=two)))
            return "ended"
        case _ if CASE.startswith(SERVED):
            return await converse_with_server(five)
        case _:
            return await converse_otherwise(five)


async def converse_with_server(five: types.Part) -> str:
    """A conversation with an agent whose only tools are those of an MCP server, which is a process."""
    command = StdioServerParameters(command=sys.executable, args=SERVER)
    served = McpToolset(connection_params=StdioConnectionParams(server_params=command, timeout=60))
    reads = {"clauses": {"pay": {"effect": "read"}}} if "read" in CASE else {}
    try:
        return await said(runner_of(desk_of([five], tools=[served]), **reads))
    finally:
        await served.close()


async def converse_otherwise(five: types.Part) -> Any:
    match CASE:
        case "arguments that do not fit":
            return await said(runner_of(desk_of([call("mail", {"to": 5}), call("pay", {})])))
        case "no such tool":
            return await said(runner_of(desk_of([call("nothing_such", {})])))
        case "callbacks before and after a tool":
            more = {"before_tool_callback": guard, "after_tool_callback": observed}
            return await said(runner_of(desk_of([call("pay", {"cents": 500}, "p")], [five], **more), Watch("watch")))
        case "a stream":
            config = RunConfig(streaming_mode=StreamingMode.SSE)
            runner, parts = runner_of(desk_of([five])), []
            session = await runner.session_service.create_session(app_name="desk", user_id="u")
            go = types.Content(role="user", parts=[types.Part(text="go")])
            async for event in runner.run_async(user_id="u", session_id=session.id, new_message=go, run_config=config):
                parts.extend(
                    [part.text for part in event.content.parts if part.text and event.partial] if event.content else []
                )
                last = event
            SEEN.append("".join(parts))
            return last.content.parts[0].text
        case "a limit of model calls":
            return await said(runner_of(desk_of([five])), run_config=RunConfig(max_llm_calls=1))
        case "a model that fails":
            from datetime import timedelta

            from beforehand.policies import Retry

            async def instead(callback_context: Any, llm_request: Any, error: Exception) -> LlmResponse:
                assert "the model is gone" in str(error), error
                return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="sorry")]))

            broken = desk_of(model=Model(model="desk", fails=True), on_model_error_callback=instead)
            retry = Retry(attempts=2, base=timedelta(0))
            return await said(runner_of(broken, retry=retry))
        case "a tool that runs long":
            later = desk_of([call("nothing", {})], tools=[LongRunningFunctionTool(nothing)])
            return await said(runner_of(later))
        case "a tool that only steers":
            return await said(runner_of(desk_of([call("exit_loop", {})], tools=[exit_loop])))
        case "a host that swallows":
            try:
                return await said(runner_of(desk_of([call("pay_and_break", {})], tools=[pay_and_break])))
            except BaseException:
                return "paid, surely"
        case "sessions in a database":
            runner = runner_of(desk_of([five]))
            runner.session_service = SqliteSessionService(str(DIRECTORY / "sessions.db"))
            try:
                return await said(runner)
            except Exception:
                return "swallowed"
        case "a session of before":
            return await said(RUNNER[0])
        case "clauses that do not exist":
            try:
                return await said(runner_of(desk_of([five]), clauses={"pay": {"twice": True}}))
            except Exception:
                return "swallowed"
        case "clauses of no tool":
            return await said(runner_of(desk_of([five]), clauses={"pya": {"gate": "true"}}))
        case "long ids":  # one that is asked about again, and one of an agent that is a tool
            second = LlmAgent(
                name="second", model=Model(model="second", turns=[[call("pay", {"cents": 6}, LONG)]]), tools=[pay]
            )
            turns = [call("careful", {"cents": 5}, LONG)], [call("second", {"request": "pay"}, LONG)]
            return await said(runner_of(desk_of(*turns, tools=[careful, AgentTool(second)])))
        case _:
            raise AssertionError(CASE)


def pay_and_break() -> str:
    """Pay, and lose the answer."""
    SENT.append("5")
    raise OSError("the connection broke")


@agent(tools=[mail, close])
async def desk(run: Run, task: str) -> Any:
    answer = await converse(task)
    ANSWERS.append(answer)
    if CASE in TWICE or CASE == "a stream":
        await close()
    return answer


RUNNER = [runner_of(desk_of([call("pay", {"cents": 5})]))]


run, refused = functools.partial(casework.run, desk), functools.partial(casework.refused, desk)

TWICE = {
    "parallel": ("mail to ann; paid 5; mail to bob", ["5", "ann", "bob"], 3),
    "ids that repeat, or cannot name a step": ("paid 5; paid 6; paid 7", ["5", "6", "7"], 2),
    "state of the session": (["noted; noted", "y"], ["x", "y"], 3),
    "no result": ("None", ["nothing"], 2),
    "a transfer": ("paid 5", ["5"], 3),
    "agents that are tools, in parallel": ("paid 5; paid 5", ["5", "5"], 6),
    "agents beside each other": ("ended", ["ann", "bob"], 4),
    "a tool that only steers": ("", [], 1),
    "a tool that runs long": ("", ["nothing"], 1),
}
"""Cases whose run is started twice: what both say, what was sent, and how often a model was asked."""


async def served() -> None:
    """What agents with the tools of an MCP server answer."""
    match CASE.removeprefix(SERVED).strip(", "):
        case "":
            asked = [await run(), await run()]
            assert "paid 5" in asked[0] == asked[1], asked
        case "an error" | "no answer":
            assert "an attempt may have landed" in await run(resolve)
            assert "paid, says ann" in await run()
        case "an error of a read":
            assert "of an MCP server reports an error" in (asked := await run()), asked
    casework.paid_at_server()


async def main() -> None:
    match CASE:
        case _ if CASE.startswith(SERVED):
            await served()
        case _ if CASE in TWICE:
            for _ in range(2):
                assert "r1/close#1" in await run()
            answer, *counts = TWICE[CASE]
            assert [ANSWERS, sorted(SENT), len(ASKED)] == [[answer, answer], *counts], (ANSWERS, SENT, ASKED)
        case "confirmation":
            assert "may pay(cents=5) be sent?" in await run(approve)
            assert [await run(), SENT] == ["paid 5", ["5"]]
            assert (await casework.used(desk, "desk"))[0] == Usage(100, 20, 0.0, 60, 0, 8, model="m-1")
        case "confirmation of a declared tool":
            assert "may mail(to=ann) be sent?" in await run(approve)
            said_now = await run()
            assert [said_now, SENT] == ["mail to ann", ["ann"]], (said_now, SENT)
        case "confirmation declined":
            assert "may pay(cents=5) be sent?" in await run(decline)
            assert "too much" in await run()
            assert SENT == []
        case "a tool that asks for a confirmation":
            assert "may careful(cents=5) be sent?" in await run(approve)
            assert [await run(), SENT] == ["paid 5", ["5"]]
        case "arguments that do not fit":
            answer = await run()
            assert "to" in answer, answer
            assert "cents" in answer, answer
            assert (answer, SENT) == (await run(), [])
        case "no such tool":
            assert "nothing_such" in await run()
        case "callbacks before and after a tool":
            assert [await run(), SENT] == ["too much; paid 5", ["5"]]
            assert SEEN == ["before pay", "pay {'error': 'too much'}", "before pay", "pay paid 5"], SEEN
        case "a stream":
            assert "r1/close#1" in await run()
            assert "r1/close#1" in await run()
            assert [ANSWERS, SENT, SEEN] == [["paid 5", "paid 5"], ["5"], ["paid 5 ", ""]], SEEN
        case "a limit of model calls":
            try:
                await run()
            except Exception as error:
                assert "LlmCallsLimitExceeded" in repr(error) + str(error), error
            assert SENT == ["5"]
        case "a model that fails":
            assert [await run(), len(ASKED)] == ["sorry", 2]
        case "a host that swallows":
            assert (await run(resolve)).startswith("waits: run r1 waits: r1/adk-")
            assert await run() == "paid, says ann"
            assert SENT == ["5"]
        case "sessions in a database":
            await refused("SqliteSessionService")
        case "a session of before":
            await said(RUNNER[0])
            await refused("has events that are not of this run", sent=1)
        case "clauses that do not exist":
            await refused("does not take twice", ContractError)
        case "clauses of no tool":
            await refused("clauses= names tools that are not there: pya")
        case "long ids":
            assert "may careful" in await run(approve)
            assert [await run(), await run()] == ["paid 5; paid 6"] * 2
            assert SENT == ["5", "6"]
        case "outside a run":
            try:
                await converse("go")
            except Exception as error:
                assert "was called outside a run" in str(error), error
            else:
                raise AssertionError(CASE)


def explored() -> None:
    """Crash at every boundary of the simulated process, which has no threads; ADK needs none."""
    found = World().explore(desk, "go", allow_unknown=True)
    assert found.boundaries > 30, found
    assert found.undisturbed[0] == "mail(to='ann')", found


if __name__ == "__main__":
    explored() if CASE == "every boundary" else asyncio.run(main())
