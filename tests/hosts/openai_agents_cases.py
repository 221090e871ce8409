"""Cases of the adapter of OpenAI Agents, each in a process: `python -m tests.hosts.openai_agents_cases CASE DIRECTORY`."""
# ruff: noqa: C901, PLR0912, PT017 - a program of one table of cases, in an environment without pytest

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    function_tool,
    handoff,
)
from agents.mcp import MCPServerStdio, MCPServerStdioParams
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import ReplayDiverged, UsageError
from beforehand.hosts.openai_agents import durable
from beforehand.loop import Route, RouteModel
from beforehand.model.usage import Usage as Recorded
from tests.hosts import casework
from tests.hosts.casework import CASE, DIRECTORY, SENT, SERVED, SERVER, approve, resolve
from tests.hosts.openai_agents import Following
from tests.hosts.script import Call, Script

QUIET = RunConfig(tracing_disabled=True)
STATES: list[Any] = []
"""The state that another process stored, if this one continues it."""
OTHERWISE = {
    "an agent behind a handoff object",
    "a model of the run",
    "durable twice",
    "a late tool",
    "a session on disk",
}


class Scripted(Model):
    """A model that pays once, and then says what the tool returned."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.down = False
        self.model = "m-1"  # as the models of the SDK have it

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 - the name is the SDK's
        if self.down:
            raise casework.Down
        items = [] if isinstance(input, str) else input
        ended = [item for item in items if item.get("type") == "function_call_output"]
        call = ResponseFunctionToolCall(
            call_id="a/b" if "id" in CASE.split() else "call_1",
            name="pay",
            arguments=json.dumps(self.arguments),
            type="function_call",
        )
        text = "; ".join(str(item["output"]) for item in ended)
        part = ResponseOutputText(text=text, annotations=[], type="output_text", logprobs=[])
        said = ResponseOutputMessage(id="m1", content=[part], role="assistant", status="completed", type="message")
        used = Usage()
        if CASE == "what was used":
            used = Usage(requests=1, input_tokens=100, output_tokens=20, total_tokens=120)
            used.input_tokens_details.cached_tokens = 60
            used.output_tokens_details.reasoning_tokens = 8
        return ModelResponse(output=[said if ended else call], usage=used, response_id="resp_1")

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async def events() -> AsyncIterator[Any]:
            answer = await self.get_response(*args, **kwargs)
            response = Response(
                id="r1", created_at=0, model="scripted", object="response", output=answer.output, tool_choice="auto",
                tools=[], parallel_tool_calls=True,
            )  # fmt: skip
            yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")

        return events()


async def paying(cents: int) -> str:
    """Pay."""
    SENT.append(str(cents))
    if CASE in {"an exception is no success", "a session on disk"}:
        raise OSError("the connection broke")
    return f"paid {cents}"


@tool(idempotency=Key.forever(), name="pay")
async def keyed(cents: int) -> str:
    """Pay."""
    return await paying(cents) if current_operation().key else ""


FIVE = Call("call_1", "pay", {"cents": 5})


async def converse_otherwise(task: str) -> str:
    """Conversations whose agent is put together in another way."""
    pay = function_tool(paying, name_override="pay", needs_approval=CASE == "durable twice")
    desk = Agent(name="desk", model=Following(Script([FIVE])), tools=[pay])
    settings: dict[str, Any] = {"run_config": QUIET}
    match CASE:
        case "an agent behind a handoff object":
            hand = Call("hand_1", "transfer_to_desk", {})
            desk.model = Following(Script([hand], [FIVE]))
            desk = Agent(name="first", model=Following(Script([hand])), handoffs=[handoff(desk)])
        case "a model of the run":
            settings["run_config"] = RunConfig(tracing_disabled=True, model=Following(Script([FIVE])))
        case "durable twice":
            desk = durable(desk)
        case "a late tool":
            desk = durable(Agent(name="desk", model=Following(Script([FIVE]))))
            desk.tools.append(pay)
        case "a session on disk":
            settings["session"] = SQLiteSession("s1", DIRECTORY / "sessions.db")
    return str((await Runner.run(durable(desk), task, **settings)).final_output)


async def converse_with_server(task: str) -> str:
    """A conversation with an agent whose only tools are those of an MCP server, which is a process."""
    reads = {"clauses": {"pay": {"effect": "read"}}} if "read" in CASE else {}
    asks: Any = "always" if CASE.endswith("approval") else "never"
    command = MCPServerStdioParams(command=sys.executable, args=SERVER)
    async with MCPServerStdio(command, require_approval=asks, client_session_timeout_seconds=60) as server:
        late = CASE.endswith("late")
        desk = Agent(name="desk", model=Following(Script([FIVE])), mcp_servers=[] if late else [server])
        desk = durable(desk, **reads).clone(instructions="Pay.")
        if late:
            desk.mcp_servers.append(server)
        return str((await Runner.run(desk, task, run_config=QUIET)).final_output)


def approving() -> Any:
    """The agent, made anew as in another process, with a tool that the host asks about."""
    pay = function_tool(paying, name_override="pay", needs_approval=True)
    return durable(Agent(name="desk", model=Scripted({"cents": 5}), tools=[pay]))


async def converse(task: str) -> str:
    if CASE in OTHERWISE:
        return await converse_otherwise(task)
    if CASE.startswith(SERVED):
        return await converse_with_server(task)
    if STATES:
        state = await RunState.from_json(approving(), STATES[0])
        state.approve(state.get_interruptions()[0])
        return str((await Runner.run(approving(), state, run_config=QUIET)).final_output)
    wrong = CASE == "arguments that do not fit"
    pay = function_tool(paying, name_override="pay", needs_approval=CASE == "approval")
    one: Any = keyed if CASE == "explored" else pay
    made = durable(
        Agent(name="desk", model=Scripted({"cents": "many" if wrong else 5}), tools=[one]),
        route=route() if "route" in CASE else None,
    )
    if CASE.startswith("a stream"):
        streamed = Runner.run_streamed(made, task, run_config=QUIET)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)
    return str((await Runner.run(made, task, run_config=QUIET)).final_output)


def route() -> Route:
    down = Scripted({"cents": 5})
    down.down = True
    return Route([RouteModel(down, name="down"), Scripted({"cents": 5})])


@agent(tools=[keyed] if CASE == "explored" else [])
async def desk(run: Run, task: str) -> str:
    return await converse(task)


run, refused = functools.partial(casework.run, desk), functools.partial(casework.refused, desk)


async def otherwise() -> None:
    match CASE:
        case "an agent behind a handoff object":
            asked = [await run(), await run()]
            assert [asked, SENT] == [['{"assistant": "desk"}; paid 5'] * 2, ["5"]], (asked, SENT)
        case "a model of the run":
            await refused("RunConfig(model=...) replaces the model")
        case "a late tool":
            await refused("got the tool pay after durable(agent)")
        case "durable twice":
            assert "may pay(cents=5) be sent?" in await run(approve)
            assert [await run(), SENT] == ["paid 5", ["5"]]
        case "a session on disk":
            assert "an attempt may have landed" in await run(resolve)
            await refused("was asked something else", ReplayDiverged, sent=1)


async def served() -> None:
    """What agents with the tools of an MCP server answer."""
    match CASE.removeprefix(SERVED).strip(", "):
        case "":
            asked = [await run(), await run()]
            assert asked[0] == asked[1], asked
            assert "paid 5" in asked[0], asked
        case "approval":
            assert "may pay(cents=5) be sent?" in await run(approve)
            assert "paid 5" in await run()
        case "an error" | "an error, late":
            assert "an attempt may have landed" in await run(resolve)
            assert "paid, says ann" in await run()
        case "an error of a read":
            assert "pay of an MCP server reports an error" in await run()
    casework.paid_at_server()


async def without_a_run() -> None:
    match CASE:
        case "a stored state":
            ended = await Runner.run(approving(), "go", run_config=QUIET)
            STATES.append(ended.to_state().to_json())
            asks = "may pay(cents=5) be sent?"
            assert asks in await run(approve)
            assert [await run(), await run(), SENT] == ["paid 5", "paid 5", ["5"]]
        case "clauses of no tool":
            pay = function_tool(paying, name_override="pay")
            behind = Agent(name="first", handoffs=[handoff(Agent(name="desk", tools=[pay]))])
            durable(behind, clauses={"pay": {"effect": "read"}})
            try:
                durable(behind, clauses={"pya": {"gate": "true"}})
            except UsageError as error:
                assert ("pya" in error.message, error.next_step) == (True, "write pay"), error
            else:
                raise AssertionError
        case "approval outside a run":
            ended = await Runner.run(approving(), "go", run_config=QUIET)
            assert [[one.tool_name for one in ended.interruptions], SENT] == [["pay"], []]
            stored = ended.to_state().to_json()
            state = await RunState.from_json(approving(), stored)
            state.approve(state.get_interruptions()[0])
            assert [(await Runner.run(approving(), state, run_config=QUIET)).final_output, SENT] == ["paid 5", ["5"]]


async def main() -> None:
    match CASE:
        case "clauses of no tool" | "approval outside a run" | "a stored state":
            await without_a_run()
        case _ if CASE in OTHERWISE:
            await otherwise()
        case _ if CASE.startswith(SERVED):
            await served()
        case "approval":
            assert "may pay(cents=5) be sent?" in await run(approve)
            assert [await run(), SENT] == ["paid 5", ["5"]]
        case "an exception is no success":
            assert "an attempt may have landed" in await run(resolve)
            assert [await run(), SENT] == ["paid, says ann", ["5"]]
        case "arguments that do not fit":
            said = await run()
            assert "Invalid JSON input for tool pay" in said, said
            assert (said, SENT) == (await run(), [])
        case "a stream" | "an id that cannot name a step" | "a stream with such an id":
            assert [await run(), await run(), SENT] == ["paid 5", "paid 5", ["5"]]
        case "what was used":
            assert [await run(), await run()] == ["paid 5"] * 2
            assert (
                await casework.used(desk, "m-1")
                == [Recorded(100, 20, 0.0, 60, 0, 8, model="m-1", request="resp_1")] * 2
            )
        case "explored":
            from beforehand.testing import World

            # Its process may die at any boundary, and the world sees each effect once.
            await asyncio.to_thread(lambda: World().explore(desk, "go"))
        case "outside a run":
            assert [await converse("go"), SENT] == ["paid 5", ["5"]]
        case "servers and local tools":
            from agents import ComputerTool

            one = Agent(name="desk", tools=[])
            one.tools = [object.__new__(ComputerTool)]
            again = Agent(name="desk", mcp_servers=[MCPServerStdio({"command": "true"}, max_retry_attempts=2)])
            asking = approving().as_tool(tool_name="ask", tool_description="Ask the desk.")
            nested = Agent(name="desk", tools=[asking])
            for wrong, text in (
                (one, "ComputerTool acts on this machine"),
                (again, "sends a call again by itself"),
                (nested, "its own tool pay needs an approval"),
            ):
                try:
                    durable(wrong)
                except UsageError as error:
                    assert text in str(error), error
                else:
                    raise AssertionError(text)
        case "tools of beforehand, and a handoff":

            @tool
            async def pay(cents: int) -> str:
                """Pay."""
                return "paid"

            last = Agent(name="last", tools=[pay])
            first = Agent(name="first", handoffs=[last])
            last.handoffs = [first]
            made = durable(first)
            assert [one.name for one in made.handoffs] == ["last"]
            assert made.handoffs[0].handoffs == [made]
            assert made.handoffs[0].tools[0].params_json_schema["properties"] == {"cents": {"type": "integer"}}


if __name__ == "__main__":
    asyncio.run(casework.routed(desk, "m-1") if "route" in CASE.split() else main())
