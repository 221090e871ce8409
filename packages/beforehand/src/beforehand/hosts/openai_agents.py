"""The OpenAI Agents SDK 0.18 to 0.24: `durable(agent)`.

Inside a run of Beforehand each model call of the agent is a recorded decision and each call of a function tool an
operation. Outside a run the agent works as usual. A tool declared with `@beforehand.tool` can be in the list of tools
as it is, and keeps its contract; any other tool is a plain write. A tool with `needs_approval` asks a person in
Beforehand's inbox.
"""
# pyright: basic, reportMissingImports=false
# The host is in an environment of its own, so its types are not known to the checkers here.

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, cast

from beforehand.agent.hosted import (
    HostControl,
    HostedRun,
    TurnSettings,
    as_they_come,
    described_tool,
    has_own_result,
    name_calls,
)
from beforehand.agent.model_calls import ToolBox
from beforehand.agent.tool import Tool
from beforehand.engine.current_operation import AT
from beforehand.errors import UsageError
from beforehand.hosts import check_named, checked_clauses, mixed, server_error, supported
from beforehand.policies import Retry

if TYPE_CHECKING:
    from beforehand.loop.route import Route
    from beforehand.loop.route_table import Capability

with supported("openai-agents", "0.18.3", "0.25", "openai-agents"):
    from agents import FunctionTool, Handoff, Model, ModelBehaviorError, ModelResponse, MultiProvider
    from agents.models import get_default_model
    from openai.types.responses import Response, ResponseCompletedEvent
    from pydantic import TypeAdapter

AgentT = TypeVar("AgentT")
AnyTool = Tool[..., Any]
_LOCAL: Final = frozenset({"ApplyPatchTool", "ComputerTool", "CustomTool", "LocalShellTool", "ShellTool"})
"""Tools of the host that act on this machine, and for which it has no call that could be recorded."""


def durable(
    agent: AgentT,
    *,
    clauses: Mapping[str, Mapping[str, Any]] | None = None,
    differs: Literal["diverge", "note"] = "diverge",
    timeout: timedelta | None = None,
    retry: Retry | None = None,
    route: Route | None = None,
) -> AgentT:
    """Record what the agent, and the agents that it hands off to, do in a run. Return a copy of the agent.

    `clauses` are those of `@beforehand.tool` for functions of the host, by name:
    `clauses={"look": {"effect": "read"}}`. `differs="note"` accepts a question that differs from the recorded one after
    a crash, and uses the recorded answer. `timeout` and `retry` apply to one model call. In a run the models of
    `route`, or those with these names, are asked in the place of the agents' own. Raises `UsageError` for tools that
    cannot be recorded.
    """
    turns = TurnSettings(differs, timeout, retry)
    if clauses and (tools := _tools_of(agent)) is not None:
        check_named("clauses=", clauses, tools)
    return cast("AgentT", _Durable(checked_clauses(clauses), turns, route).agent(agent))


def _tools_of(agent: Any) -> set[str] | None:
    """The names of the tools of an agent, and of those that it hands off to; None if some are known only later."""
    found: dict[int, Any] = {}
    left = [agent]
    while left:
        one = left.pop()
        if isinstance(one, Handoff):
            behind = one._agent_ref  # noqa: SLF001 - it has no public name
            one = None if behind is None else behind()
        if one is None or one.mcp_servers:
            return None
        if id(one) not in found:
            found[id(one)] = one
            left += one.handoffs
    return {tool.name for one in found.values() for tool in one.tools}


class _Durable:
    """Makes copies of agents; each is copied once, as agents may hand off to each other."""

    def __init__(self, clauses: Mapping[str, Mapping[str, Any]], turns: TurnSettings, route: Route | None) -> None:
        self._clauses = clauses
        self._turns = turns
        self._route = route
        self._copies: dict[int, Any] = {}

    def agent(self, agent: Any) -> Any:
        if isinstance(agent.model, _DurableModel):
            return agent  # a second wrapping would lose the approvals of the first
        if (known := self._copies.get(id(agent))) is not None:
            return known
        model = _DurableModel(agent.model, self._turns, self._route, self._tool)
        made = self._copies[id(agent)] = agent.clone(model=model, tools=[self._tool(one) for one in agent.tools])
        object.__setattr__(made, "__class__", mixed(_WithServers, cast("Any", type(made))))
        made.mcp_servers = [_Server.of(one) for one in agent.mcp_servers]
        made.handoffs = [self._handoff(one) for one in agent.handoffs]
        return made

    def _handoff(self, one: Any) -> Any:
        """The agent, or the `handoff(...)` to one, which makes its agent when the model chooses it."""
        if not isinstance(one, Handoff):
            return self.agent(one)

        async def invoke(context: Any, sent: str) -> Any:
            return self.agent(await one.on_invoke_handoff(context, sent))

        return dataclasses.replace(one, on_invoke_handoff=invoke)

    def _tool(self, one: Any) -> Any:
        if isinstance(one, Tool):
            (described,) = ToolBox({one.name: one}).schemas()
            made = FunctionTool(
                name=one.name, description=described["description"], params_json_schema=described["parameters"],
                on_invoke_tool=functools.partial(_call_declared, one), strict_json_schema=False,
            )  # fmt: skip
            made.__class__ = mixed(_AskedInRun, FunctionTool)
            return made
        if type(one).__name__ in _LOCAL:
            raise UsageError(
                f"{type(one).__name__} acts on this machine, and its calls cannot be recorded",
                known="nothing was sent",
                next_step="offer the same as a function with @beforehand.tool",
            )
        if not isinstance(one, FunctionTool):
            return one  # the provider of the model performs it, as a part of its answer
        _refuse_approvals_inside(one)
        # The host would turn an exception into a text for the model, as if the call had succeeded.
        bare = dataclasses.replace(one, _failure_error_function=None, _use_default_failure_error_function=False)
        made = dataclasses.replace(one, on_invoke_tool=functools.partial(self._call, bare, one.needs_approval))
        made.__class__ = mixed(_AskedInRun, cast("Any", type(one)))
        return made

    async def _call(self, bare: Any, needs_approval: Any, context: Any, sent: str) -> Any:
        """A call of a function of the host: an operation whose body is the host's."""
        hosted = HostedRun.current()
        if hosted is None:
            return await bare.on_invoke_tool(context, sent)
        with hosted.stopping():
            _check_model(context)
            return await self._recorded(hosted, bare, needs_approval, context, sent)

    async def _recorded(self, hosted: HostedRun, bare: Any, needs_approval: Any, context: Any, sent: str) -> Any:
        arguments = _parsed(sent)
        asked = needs_approval
        if callable(needs_approval):
            asked = needs_approval(context, arguments, context.tool_call_id)
            asked = await asked if inspect.isawaitable(asked) else asked
        described = described_tool(
            bare.name, bare.params_json_schema, self._clauses.get(bare.name, {}), arguments=arguments,
            description=bare.description, asked=bool(asked),
        )  # fmt: skip
        outcome, control = await hosted.call_body(
            context.tool_call_id, described, arguments, lambda: _performed(bare, context, sent)
        )
        if control is not None:
            return control["message"]
        return outcome.value if has_own_result(outcome) else outcome.as_text()


class _WithServers(Generic[AgentT]):  # as the host's class is, or it could not be mixed in
    """A durable agent: tools of its MCP servers, which the host lists before each turn, are recorded as others are."""

    model: Any
    mcp_servers: list[Any]

    async def get_mcp_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As the host's."""
        self.mcp_servers[:] = [_Server.of(one) for one in self.mcp_servers]  # some may have come since
        tools = await cast("Any", super()).get_mcp_tools(*args, **kwargs)
        return [self.model.recorded(one) for one in tools] if isinstance(self.model, _DurableModel) else tools


class _Server:
    """An MCP server whose errors are errors of an operation. The host would take them for results."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @classmethod
    def of(cls, server: Any) -> _Server:
        """The server as one of these. Raises `UsageError` for one that sends calls again by itself."""
        if isinstance(server, cls):
            return server
        if getattr(server, "max_retry_attempts", 0):
            raise UsageError(
                f"the MCP server {server.name} sends a call again by itself (max_retry_attempts)",
                known="nothing was sent",
                next_step="leave max_retry_attempts at 0; Beforehand attempts again where the contract allows it",
            )
        return cls(server)

    def __getattr__(self, name: str) -> Any:
        if name == "_server":
            raise AttributeError(name)  # of a copy that is being made
        return getattr(self._server, name)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.__aexit__(*error)

    async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """As the server's. In an operation, raises `Ambiguous` for an error that it reports."""
        result = await self._server.call_tool(name, *args, **kwargs)
        failed = getattr(result, "isError", None) or getattr(result, "is_error", None)  # MCP 1 and 2
        if failed and AT.get() is not None:
            raise server_error(name, " ".join(getattr(one, "text", "") for one in result.content))
        return result


class _AskedInRun:
    """A recorded tool. The host asks for its approvals outside a run. In a run the gate of the operation asks."""

    @property
    def needs_approval(self) -> Any:
        """The host's setting; False in a run, where the host would end the agent to ask."""
        return HostedRun.current() is None and self.__dict__["needs_approval"]

    @needs_approval.setter
    def needs_approval(self, setting: Any) -> None:
        self.__dict__["needs_approval"] = setting


def _refuse_approvals_inside(tool: Any) -> None:
    """Raise `UsageError` for an agent that is a tool and asks about its own: the call would end with the question."""
    inner: Any = getattr(tool, "_agent_instance", None)
    asking = [one.name for one in getattr(inner, "tools", ()) if one.__dict__.get("needs_approval")]
    if asking:
        raise UsageError(
            f"the agent {inner.name} is a tool, and its own tool {asking[0]} needs an approval, which no record holds",
            known="nothing was sent",
            next_step=f"hand off to {inner.name}, or ask about the whole agent: as_tool(..., needs_approval=True)",
        )


async def _call_declared(tool: AnyTool, context: Any, sent: str) -> Any:
    """A call of a Beforehand tool."""
    hosted = HostedRun.current()
    if hosted is None:
        return await tool(**_parsed(sent))
    with hosted.stopping():
        _check_model(context)
        outcome = await hosted.call_checked(context.tool_call_id, tool, sent)
    return outcome.value if has_own_result(outcome) else outcome.as_text()


def _check_tools(tools: list[Any]) -> None:
    """Raise `UsageError` for a tool that came after `durable(agent)`: no record would hold its calls."""
    acts = (one for one in tools if isinstance(one, FunctionTool) or type(one).__name__ in _LOCAL)
    late = [one.name for one in acts if not isinstance(one, _AskedInRun)]
    if late:
        raise UsageError(
            f"the agent got the tool {late[0]} after durable(agent), so its calls are not recorded",
            known="nothing was sent for this turn",
            next_step="call durable(agent) when the agent has all its tools",
        )


def _check_model(context: Any) -> None:
    """Raise `UsageError` for a call that a model chose which `RunConfig` has put in the place of the recorded one."""
    if context.run_config is not None and context.run_config.model is not None:
        raise UsageError(
            "RunConfig(model=...) replaces the model of the agent, and its answers are not recorded",
            known="nothing was sent",
            next_step="give the model to the agent: durable(agent.clone(model=...))",
        )


async def _performed(bare: Any, context: Any, sent: str) -> Any:
    """The result of a function of the host, as plain JSON. Raises `HostControl` if the host refused the arguments."""
    try:
        value = await bare.on_invoke_tool(context, sent)
    except ModelBehaviorError as error:
        if getattr(bare, "_is_agent_tool", False):
            raise  # of an agent that is a tool: it may have done anything before
        raise HostControl("error", str(error), {"message": str(error)}) from error
    return TypeAdapter(Any).dump_python(value, mode="json")


def _parsed(sent: str) -> dict[str, Any]:
    """The arguments of the model; the host judges those that are no object."""
    try:
        values: object = json.loads(sent or "{}")
    except ValueError:
        values = None
    return cast("dict[str, Any]", values) if isinstance(values, dict) else {"input": sent}


class _DurableModel(Model):  # type: ignore[misc]  # the checkers do not know the host
    """A model whose answers are recorded. Without one, and by name, it is the host's own."""

    def __init__(self, inner: Any, turns: TurnSettings, route: Route | None, recorded: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._turns = turns
        self._route = route
        self.recorded = recorded  # a tool of the host as one whose calls are operations

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        """The answer, from the record if it is there."""
        hosted = HostedRun.current()
        if hosted is None:
            return await _resolved(self._inner).get_response(*args, **kwargs)
        ask = functools.partial(_whole, args, kwargs)
        return _ANSWER.validate_python(await self._answer(hosted, args, kwargs, lambda: self._ask(ask, args, kwargs)))

    async def _ask(self, ask: Callable[[Any], Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        """The answer of the agent's own model, or of the route."""
        if self._route is None:
            return await ask(self._inner)
        question = _QUESTION.bind(None, *args, **kwargs).arguments
        needs: list[Capability] = ["tools"] if question["tools"] else []
        if question["output_schema"]:
            needs.append("schema")
        return await self._route.call(ask, needs=tuple(needs))

    async def _answer(self, hosted: HostedRun, args: Any, kwargs: Any, model: Callable[[], Awaitable[Any]]) -> Any:
        name = hosted.begin("turn")
        seen = _seen(args, kwargs)
        with hosted.stopping():
            _check_tools(_QUESTION.bind(None, *args, **kwargs).arguments["tools"])
            asked = (self._inner or get_default_model(),) if self._route is None else self._route.models
            stored = await hosted.turn(name, seen, model, self._turns, asked)
        before = [one["call_id"] for one in seen["input"] if isinstance(one, dict) and "call_id" in one]
        name_calls(name, [one for one in stored["output"] if one["type"] == "function_call"], "call_id", before=before)
        return stored

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """The events of the answer as they come; from the record, only the last one, which holds the whole answer."""
        hosted = HostedRun.current()
        if hosted is None:
            async for event in _resolved(self._inner).stream_response(*args, **kwargs):
                yield event
            return

        async def answer(show: Callable[[Any], None]) -> Any:
            async def ask(inner: Any) -> Any:
                last = None
                async for event in _resolved(inner).stream_response(*args, **kwargs):
                    if isinstance(event, ResponseCompletedEvent):
                        last = event.response
                    else:
                        show(event)
                if last is None:
                    raise ConnectionError("the stream of the model ended before its answer was complete")
                return last.model_dump(mode="json", warnings=False)

            return await self._answer(hosted, args, kwargs, lambda: self._ask(ask, args, kwargs))

        async for last, one in as_they_come(answer):
            if not last:
                yield one
                continue
            response = Response.model_validate(one)
            yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


def _resolved(inner: Any) -> Any:
    """A model, or the one that the host has under this name."""
    return inner if isinstance(inner, Model) else MultiProvider().get_model(inner)


async def _whole(args: Any, kwargs: Mapping[str, Any], inner: Any) -> Any:
    """The answer of a model as plain JSON, with the model's name: the answer does not name it."""
    model = _resolved(inner)
    answer = _ANSWER.dump_python(await model.get_response(*args, **kwargs), mode="json", warnings=False)
    return {**answer, "model": getattr(model, "model", None)}


_ANSWER: Final[Any] = TypeAdapter(ModelResponse)


_QUESTION: Final = inspect.signature(Model.get_response)


def _seen(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The question to the model, as plain JSON."""
    asked = _QUESTION.bind(None, *args, **kwargs).arguments
    plain = TypeAdapter(Any).dump_python(asked["input"], mode="json", warnings=False)
    return {"input": plain, "system": asked["system_instructions"], "tools": [one.name for one in asked["tools"]]}
