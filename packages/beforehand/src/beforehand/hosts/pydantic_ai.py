"""Pydantic AI 2: `Agent(..., capabilities=[BeforehandDurability()])`.

Inside a run of Beforehand each model request of the agent is a recorded decision and each tool call an operation.
Outside a run the agent works as usual. A tool declared with `@beforehand.tool` keeps its contract. Any other tool is a
plain write: it is attempted once, and a person is asked if its outcome is unknown.
`Tool(metadata={"beforehand": {"effect": "read"}})` declares a read; it takes the clauses of `@beforehand.tool`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Literal, TypeVar, cast

from beforehand.agent.hosted import (
    HostControl,
    HostedRun,
    TurnSettings,
    described_tool,
    has_own_result,
    name_calls,
)
from beforehand.agent.tool import Tool
from beforehand.errors import ContractError
from beforehand.hosts import checked_clauses, server_error, supported
from beforehand.loop.route import Route
from beforehand.loop.route_table import Capability
from beforehand.model.outcome import Outcome
from beforehand.policies import Retry

with supported("pydantic-ai-slim", "2.68", "3", "pydantic-ai"):
    from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.agent.abstract import AbstractAgent
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        CallableOperationBackend,
        DurabilityEngineSpec,
        DurableOperationId,
        EventStreamHandlerId,
        JournalCallableOperationBackend,
        ModelRequestId,
        RoleBasedOperationConfig,
        ToolsetCallToolId,
        conversation_id_from_run_id,
        record_durable_unit,
        replay_scope,
    )
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.fallback import FallbackModel
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

Deps = TypeVar("Deps")
AnyTool = Tool[..., Any]

_OF_THIS_PROCESS: dict[str, Any] = {
    "__all__": {"timestamp": True, "run_id": True, "conversation_id": True, "parts": {"__all__": {"timestamp"}}}
}
"""Clocks and ids of the process in messages: a model is not shown them."""
_ASKED = {"beforehand": "a person is asked"}
_RETURNS = frozenset({"tool_return", "tool_content_result"})
_FAILURES = frozenset({"model_retry", "tool_failed"})


class BeforehandDurability(BaseDurabilityCapability[Deps]):
    """The capability that records what an agent of Pydantic AI does in a run of Beforehand.

    `differs="note"` accepts a request that differs from the recorded one after a crash, and uses the recorded answer.
    `timeout` and `retry` apply to one model request. `models` and `event_stream_handler` are the same as for other
    durability capabilities of Pydantic AI.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Beforehand",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        # Toolsets that are added after the agent was made are not wrapped: their calls would be in no record.
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[Deps] | None = None,
        name: str | None = None,
        differs: Literal["diverge", "note"] = "diverge",
        timeout: timedelta | None = None,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._turns = TurnSettings(differs, timeout, retry)

    def for_agent(self, agent: AbstractAgent[Deps, Any]) -> BeforehandDurability[Deps]:
        """Bind to an agent. One without a name is called `agent`."""
        named = copy.copy(self)
        named.name = self.name or agent.name or "agent"
        return cast("BeforehandDurability[Deps]", super(BeforehandDurability, named).for_agent(agent))

    @property
    def in_durable_context(self) -> bool:
        """True in the code of a run."""
        return HostedRun.current() is not None

    def get_durable_operation_backend(self) -> CallableOperationBackend[Any]:
        """The backend that records."""
        return _Backend(self.name, self.default_model_id, self._turns)

    def get_default_run_id(self) -> str | None:
        """The same id in each process that drives the run."""
        hosted = HostedRun.current()
        return None if hosted is None else f"{hosted.id}/{hosted.begin(self.name)}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The same id in each process that drives the run."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def wrap_run(
        self, ctx: RunContext[Deps], *, handler: Callable[[], Awaitable[AgentRunResult[Any]]]
    ) -> AgentRunResult[Any]:
        """Keep the telemetry of what is replayed out of traces, and threads out of a simulated process."""
        with ExitStack() as stack:
            hosted = HostedRun.current()
            if hosted is not None:
                stack.enter_context(replay_scope())
                if hosted.inline:  # its loop calls at once what an executor is given; the host's own threads never end
                    stack.enter_context(AbstractAgent.using_thread_executor(ThreadPoolExecutor()))
            return await super().wrap_run(ctx, handler=handler)

    async def handle_deferred_tool_calls(
        self,
        ctx: RunContext[Deps],  # noqa: ARG002 - a part of the host's interface
        *,
        requests: DeferredToolRequests,
    ) -> DeferredToolResults | None:
        """Let calls that need approval through to the operation, whose gate asks with the exact arguments."""
        if not self.in_durable_context or not requests.approvals:
            return None
        ids = [call.tool_call_id for call in requests.approvals]
        return DeferredToolResults(approvals={one: ToolApproved() for one in ids}, metadata=dict.fromkeys(ids, _ASKED))


class RoutedModel(WrapperModel):
    """A model that asks those of a route: `Agent(RoutedModel(Route([big, small])), ...)`. The first has its profile."""

    def __init__(self, route: Route) -> None:
        super().__init__(route.models[0])
        self.route = route

    @property
    def model_name(self) -> str:
        """The names of all models of the route."""
        return self.route.name

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The answer of the model that the route chooses."""

        async def ask(model: Model) -> ModelResponse:
            return await model.request(messages, model_settings, model_request_parameters)

        return await self.route.call(ask, needs=_needs_of(model_request_parameters))

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """The stream of the model that the route chooses. An error after its beginning is not one of the route."""
        async with AsyncExitStack() as stack:

            async def opened(model: Model) -> StreamedResponse:
                stream = model.request_stream(messages, model_settings, model_request_parameters, run_context)
                return await stack.enter_async_context(stream)

            yield await self.route.call(opened, needs=_needs_of(model_request_parameters))


def _asked_by(model: Model) -> tuple[Any, ...]:
    """The models that a request to this one may ask."""
    while isinstance(model, WrapperModel) and not isinstance(model, RoutedModel):
        model = model.wrapped
    if not isinstance(model, (RoutedModel, FallbackModel)):
        return (model,)
    inner: Sequence[Any] = model.route.models if isinstance(model, RoutedModel) else model.models
    return tuple(asked for one in inner for asked in _asked_by(one))


def _needs_of(parameters: ModelRequestParameters) -> tuple[Capability, ...]:
    """The capabilities that an answer to the request needs."""
    schema: tuple[Capability, ...] = ("schema",) if parameters.output_object is not None else ()
    return ("tools", *schema) if parameters.function_tools or parameters.output_tools else schema


class _Backend(JournalCallableOperationBackend[Any]):
    """Records the units of one agent in the run that the caller is in."""

    def __init__(self, name: str, default_model: str | None, turns: TurnSettings) -> None:
        config = RoleBasedOperationConfig[Any](model=None, event=None, capability=None, tool=None)
        super().__init__(agent_name=name, default_model_id=default_model, config=config)
        self._agent = name
        self._turns = turns

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Any,  # noqa: ARG002 - a part of the host's interface
    ) -> object:
        """Perform one unit, or return what is on record."""
        hosted = HostedRun.current()
        if hosted is None:
            return await body()
        executed: list[bool] = []

        async def observed() -> object:
            executed.append(True)
            return await body()

        try:
            with hosted.stopping():
                if isinstance(operation_id, ModelRequestId):
                    return await self._request(hosted, observed, cache_key)
                if isinstance(operation_id, ToolsetCallToolId):
                    return await self._call(hosted, observed, cache_key)
                context = _context_of(cache_key)
                call = "" if context is None else context.tool_call_id or ""
                what = "events" if isinstance(operation_id, EventStreamHandlerId) else name
                return await hosted.value(f"{what}:{call}" if call else what, observed)
        finally:
            record_durable_unit(executed=bool(executed))

    async def _request(
        self, hosted: HostedRun, body: Callable[[], Awaitable[object]], key: tuple[object, ...]
    ) -> object:
        _, messages, settings, parameters, context = cast("tuple[Any, Any, Any, ModelRequestParameters, Any]", key)
        run_id = str(context.run_id).removeprefix(f"{hosted.id}/")
        turn = f"turn-{context.run_step}"
        name = turn if run_id == self._agent else f"{run_id}.{turn}".replace("/", ".")
        seen: dict[str, Any] = {
            "messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json", exclude=_OF_THIS_PROCESS),
            "settings": {one: repr(value) for one, value in sorted(cast("dict[str, Any]", settings or {}).items())},
            "tools": [tool.name for tool in parameters.function_tools],
        }
        checked_clauses({tool.name: (tool.metadata or {}).get("beforehand", {}) for tool in parameters.function_tools})
        answer = await hosted.turn(name, seen, body, self._turns, _asked_by(context.model))
        name_calls(name, [one for one in answer["parts"] if one["part_kind"] == "tool-call"], "tool_call_id")
        return answer

    async def _call(self, hosted: HostedRun, body: Callable[[], Awaitable[object]], key: tuple[object, ...]) -> object:
        name, arguments, context, known = cast("tuple[str, dict[str, Any], RunContext[Any], Any]", key)
        call = context.tool_call_id
        if not call:
            raise ContractError(
                f"the call of the tool {name} has no id, so its operation cannot be named",
                known="nothing was sent",
                next_step="use a model that gives each tool call an id, or set ToolCallPart(tool_call_id=...)",
            )
        asked = context.tool_call_approved and context.tool_call_metadata == _ASKED
        ours = _declared(name, known)
        if ours is not None:
            outcome = await hosted.call(call, ours.asking() if asked else ours, arguments)
            return _payload_of(outcome)
        definition: ToolDefinition = known if isinstance(known, ToolDefinition) else known.tool_def
        # `MCPToolset` describes its tools with these, also behind a toolset that filters or makes it.
        of_server = name if "annotations" in (definition.metadata or {}) else ""
        tool = _tool_of(name, definition, asked=asked)
        outcome, control = await hosted.call_body(call, tool, arguments, lambda: _controlled(body, of_server))
        return _payload_of(outcome) if control is None else control


async def _controlled(body: Callable[[], Awaitable[object]], of_server: str) -> object:
    """The result of a call that returned. Raises `HostControl` where it ended with control flow of Pydantic AI.

    An error of an MCP server arrives as control flow, too: `of_server` names the tool of one.
    """
    payload = cast("dict[str, Any]", await body())
    kind, message = payload["kind"], str(payload.get("message", ""))
    if kind in _RETURNS:
        return payload["result"]
    if of_server and kind in _FAILURES:
        raise server_error(of_server, message)
    raise HostControl(kind, message, payload)


def _payload_of(outcome: Outcome[Any]) -> dict[str, Any]:
    """The outcome of an operation as the payload of a tool call. The model receives a failure as text."""
    if has_own_result(outcome):
        result = JSON_CODEC.dump(Any, outcome.value)
        content = isinstance(result, dict) and cast("dict[str, Any]", result).get("kind") == "tool-return"
        return {"kind": "tool_content_result" if content else "tool_return", "result": result}
    if outcome.status == "succeeded":
        return {"kind": "tool_return", "result": outcome.as_text()}
    return {"kind": "tool_failed", "message": outcome.as_text()}


def _declared(name: str, known: Any) -> AnyTool | None:
    """The Beforehand tool behind a tool of the host, if there is one."""
    held: Mapping[str, Any] = getattr(getattr(known, "toolset", None), "tools", {})
    one = held.get(getattr(known, "original_name", None) or name)
    function: object = getattr(one, "function", None)
    return cast("AnyTool", function) if isinstance(function, Tool) else None


def _tool_of(name: str, definition: ToolDefinition, *, asked: bool) -> AnyTool:
    """A tool of the host as one of Beforehand. Raises `ContractError` for clauses that it does not take."""
    clauses, described = (definition.metadata or {}).get("beforehand", {}), definition.description or ""
    return described_tool(name, definition.parameters_json_schema, clauses, description=described, asked=asked)


def _context_of(key: tuple[object, ...]) -> RunContext[Any] | None:
    return next((cast("RunContext[Any]", part) for part in key if isinstance(part, RunContext)), None)  # type: ignore[redundant-cast]  # pyright needs it
