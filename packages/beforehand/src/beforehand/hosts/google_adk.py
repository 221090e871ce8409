"""Google ADK 2: `App(..., plugins=[BeforehandPlugin()])`, as the last plugin.

Inside a run of Beforehand each model call of the app's agents is a recorded decision and each tool call an operation.
Outside a run the app works as usual. A tool declared with `@beforehand.tool` keeps its contract; any other tool is a
plain write. A tool that requires confirmation asks a person in Beforehand's inbox.
"""
# pyright: basic, reportMissingImports=false
# The host is in an environment of its own, so its types are not known to the checkers here.

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from beforehand.agent.hosted import (
    HostControl,
    HostedRun,
    TurnSettings,
    as_they_come,
    described_tool,
    fitting,
    has_own_result,
    name_calls,
)
from beforehand.agent.tool import Tool
from beforehand.errors import UsageError
from beforehand.hosts import check_named, checked_clauses, mixed_copy, server_error, supported
from beforehand.model.outcome import Outcome
from beforehand.policies import Retry

with supported("google-adk", "2.9.0", "3", "google-adk"):
    from google.adk.agents import BaseAgent
    from google.adk.events import EventActions
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.tool_confirmation import ToolConfirmation
    from pydantic import TypeAdapter

AnyTool = Tool[..., Any]
_ACTIONS: Final = "beforehand:actions"
_CONFIRMATION: Final = "confirmation"
_STEERING: Final = frozenset({"AgentTool", "TransferToAgentTool", "SetModelResponseTool", "FinishTaskTool", "NodeTool"})
"""Tools of the host that only steer it, or whose own calls are recorded; they run again in a replay."""
_STEERING_FUNCTIONS: Final = frozenset({"exit_loop", "transfer_to_agent", "get_user_choice", "_request_input_func"})
_WITHIN: Final[ContextVar[str]] = ContextVar("beforehand_within", default="")
"""The call of an agent that is a tool, which the names of its own calls begin with."""
_AGENT: Final[ContextVar[str]] = ContextVar("beforehand_adk_agent", default="agent")


class BeforehandPlugin(BasePlugin):  # type: ignore[misc]  # the checkers do not know the host
    """Records what the agents of an app do in a run of Beforehand.

    `clauses` are those of `@beforehand.tool` for functions of the host, by name:
    `clauses={"look": {"effect": "read"}}`. `differs="note"` accepts a question that differs from the recorded one after
    a crash, and uses the recorded answer. `timeout` and `retry` apply to one model call.
    """

    def __init__(
        self,
        *,
        clauses: Mapping[str, Mapping[str, Any]] | None = None,
        differs: Literal["diverge", "note"] = "diverge",
        timeout: timedelta | None = None,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(name="beforehand")
        self._clauses = checked_clauses(clauses)
        self._turns = TurnSettings(differs, timeout, retry)

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:  # noqa: ARG002 - of the host
        """Refuse a session that holds what another process, or another attempt at this run, said."""
        hosted = HostedRun.current()
        if hosted is None:
            return
        service, session = invocation_context.session_service, invocation_context.session
        tools = _tools_of(getattr(invocation_context.agent, "root_agent", invocation_context.agent))
        if tools is not None:
            with hosted.stopping():
                check_named("clauses=", self._clauses, tools)
        problem = ""
        if not isinstance(service, InMemorySessionService):
            problem = f"this runner keeps its sessions in a {type(service).__name__}, and the run keeps them too"
        elif hosted.begin(f"session:{session.id}") == f"session:{session.id}" and session.events:
            problem = "the session of this runner has events that are not of this run"
        if problem:
            raise hosted.stop(
                UsageError(
                    problem,
                    known="nothing was sent",
                    next_step="make an InMemoryRunner and its session in the @agent function; the journal continues it",
                )
            )

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:  # noqa: ARG002 - as above
        """Let the agent ask its model through the record."""
        hosted = HostedRun.current()
        if hosted is None:
            return
        invocation = callback_context.get_invocation_context()
        if invocation.live_request_queue is not None or getattr(invocation.run_config, "support_cfc", False):
            raise hosted.stop(
                UsageError(
                    f"the agent {callback_context.agent_name} runs live, and no record holds a live conversation",
                    known="nothing was sent",
                    next_step="use runner.run_async(...) with RunConfig(streaming_mode=StreamingMode.SSE)",
                )
            )
        _AGENT.set(f"{_WITHIN.get()}{callback_context.agent_name}")
        agent = invocation.agent
        if not isinstance(agent.canonical_model, _Recorded):
            agent.model = mixed_copy(_Recorded, agent.canonical_model, _beforehand_turns=self._turns)

    async def before_tool_callback(self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """One tool call: an operation named after the model's id of the call. What it returns replaces the call."""
        hosted = HostedRun.current()
        if hosted is None:
            return None
        if _steers(tool):
            _WITHIN.set(f"{_WITHIN.get()}{tool_context.function_call_id}.")
            return None
        with hosted.stopping():  # the host would wrap an exception, and an error callback could swallow it
            answer = await _guards(self, tool, tool_args, tool_context)
            if answer is None:
                answer = await self._call(hosted, tool, tool_args, tool_context)
        if answer is None:  # None would let the host call the tool
            return {} if tool.is_long_running else {"result": None}
        return answer

    async def _call(self, hosted: HostedRun, tool: Any, arguments: dict[str, Any], context: Any) -> Any:
        if not hasattr(tool, "run_async") or type(tool).__name__ == "BaseTool":
            return {"error": f"there is no tool named {tool.name}"}
        name = fitting(f"{_WITHIN.get()}{context.function_call_id}")
        asked = await tool.check_require_confirmation(arguments, context) is True
        ours = getattr(tool, "func", None)
        if isinstance(ours, Tool):
            return _shown(await hosted.call_checked(name, ours.asking() if asked else ours, arguments))
        if asked:
            context.tool_confirmation = ToolConfirmation(confirmed=True)  # the gate asks, before the body is called
        outcome, control = await hosted.call_body(
            name, self._tool_of(tool, arguments, asked=asked), arguments, lambda: _performed(tool, arguments, context)
        )
        if control is not None and control["kind"] == _CONFIRMATION:
            context.actions.requested_tool_confirmations.clear()
            context.tool_confirmation = ToolConfirmation(
                hint=outcome.reason, confirmed=True, payload=control.get("payload") or {}
            )
            outcome, control = await hosted.call_body(
                f"{name}.confirmed", self._tool_of(tool, arguments, asked=True), arguments,
                lambda: _performed(tool, arguments, context),
            )  # fmt: skip
        if control is not None:
            return _restored(control.get("value", {"error": control.get("message", "")}), context)
        return _restored(_shown(outcome), context)

    def _tool_of(self, tool: Any, arguments: Mapping[str, Any], *, asked: bool) -> AnyTool:
        """A tool of the host as one of Beforehand."""
        clauses, described = self._clauses.get(tool.name, {}), tool.description or ""
        return described_tool(tool.name, {}, clauses, arguments=arguments, description=described, asked=asked)


def _tools_of(root: Any) -> set[str] | None:
    """The names of the tools of an agent and of those below it; None if some of them are known only when it runs."""
    found, left = set[str](), [root]
    while left:
        one = left.pop()
        if not isinstance(one, BaseAgent):
            return None
        left += one.sub_agents
        for tool in getattr(one, "tools", ()):
            name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
            if not isinstance(name, str):
                return None  # a toolset
            found.add(name)
            if isinstance(inner := getattr(tool, "agent", None), BaseAgent):
                left.append(inner)
    return found


# --- calls of tools ---------------------------------------------------------------------------------------------------


def _steers(tool: Any) -> bool:
    function = getattr(tool, "func", None)
    if _of_host(function) and getattr(function, "__name__", "") in _STEERING_FUNCTIONS:
        return True
    return any(kind.__name__ in _STEERING and _of_host(kind) for kind in type(tool).__mro__)


def _of_host(part: Any) -> bool:
    return str(getattr(part, "__module__", "")).startswith("google.adk.")


async def _guards(plugin: BeforehandPlugin, tool: Any, arguments: dict[str, Any], context: Any) -> Any:
    """The answer of a callback that comes before the tool, of a later plugin or of the agent: the host skips them."""
    invocation = context.get_invocation_context()
    plugins = invocation.plugin_manager.plugins
    for one in plugins[plugins.index(plugin) + 1 :]:
        answer = await one.before_tool_callback(tool=tool, tool_args=arguments, tool_context=context)
        if answer is not None:
            return answer
    for callback in invocation.agent.canonical_before_tool_callbacks:
        answer = callback(tool=tool, args=arguments, tool_context=context)
        answer = await answer if inspect.isawaitable(answer) else answer
        if answer is not None:
            return answer
    return None


async def _performed(tool: Any, arguments: dict[str, Any], context: Any) -> Any:
    """The result of a tool of the host, as plain JSON, with what it changed in its context.

    Raises `HostControl` if the tool did nothing: it asks for a confirmation or a credential, or its arguments do not
    fit.
    """
    value = TypeAdapter(Any).dump_python(await tool.run_async(args=arguments, tool_context=context), mode="json")
    if any(kind.__name__ == "McpTool" for kind in type(tool).__mro__) and (failed := _failure(value)):
        raise server_error(tool.name, failed)
    actions = context.actions.model_dump(mode="json", exclude_defaults=True)
    confirmation = actions.pop("requested_tool_confirmations", {}).get(context.function_call_id)
    if confirmation is not None:
        payload = {"kind": _CONFIRMATION, "payload": confirmation.get("payload")}
        raise HostControl(_CONFIRMATION, confirmation.get("hint") or "the tool asks for a confirmation", payload)
    kept = {_ACTIONS: actions, "result": value} if actions else value
    if "requested_auth_configs" in actions:
        raise HostControl("credential", "the tool asks for a credential", {"kind": "credential", "value": kept})
    if isinstance(value, dict) and str(value.get("error", "")).startswith(f"Invoking `{tool.name}()` failed"):
        raise HostControl("arguments", str(value["error"]), {"kind": "arguments", "value": kept})
    return kept


def _failure(value: Any) -> str:
    """The error that an MCP server reports, or that calling it raised: the host makes a result of both."""
    if not isinstance(value, dict) or not (value.get("isError") or value.get("is_error") or set(value) == {"error"}):
        return ""
    parts = [part.get("text", "") for part in value.get("content", ()) if isinstance(part, dict)]
    return " ".join(parts) or str(value.get("error") or value)


def _shown(outcome: Outcome[Any]) -> Any:
    """The outcome of an operation as the answer of a tool. The model receives a failure as text."""
    if has_own_result(outcome):
        return TypeAdapter(Any).dump_python(outcome.value, mode="json")
    return {"result" if outcome.status == "succeeded" else "error": outcome.as_text()}


def _restored(value: Any, context: Any) -> Any:
    """The result of a tool, after what it changed in its context was changed again."""
    if not isinstance(value, dict) or _ACTIONS not in value:
        return value
    actions = EventActions.model_validate(value[_ACTIONS])
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, name, getattr(actions, name))
    for name, part in actions.state_delta.items():
        context.state[name] = part
    return value["result"]


# --- calls of models --------------------------------------------------------------------------------------------------


class _Recorded(BaseLlm):  # type: ignore[misc]  # the checkers do not know the host
    """A model whose answers are recorded in a run. It is mixed into the model's own class, which the host asks for."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
        """The answer, from the record if it is there. Parts of it are streamed only while it is new."""
        hosted = HostedRun.current()
        if hosted is None:
            async for response in super().generate_content_async(llm_request, stream=stream):
                yield response
            return
        asks = super().generate_content_async
        name = hosted.begin(fitting(f"{_AGENT.get()}.turn"))

        async def answer(show: Callable[[Any], None]) -> Any:
            async def model() -> list[Any]:
                whole = []
                async for response in asks(llm_request, stream=stream):
                    if response.partial:
                        show(response)
                    else:
                        whole.append(response.model_dump(mode="json", exclude_none=True))
                return whole

            with hosted.stopping():
                settings, asked = self.__dict__["_beforehand_turns"], (llm_request.model or self.model,)
                return await hosted.turn(name, _seen(llm_request), model, settings, asked)

        async for last, one in as_they_come(answer):
            if not last:
                yield one
                continue
            name_calls(name, [call for response in one for call in _calls(response)], "id", prefix="adk-")
            for response in one:
                yield LlmResponse.model_validate_json(msgspec.json.encode(response))


def _calls(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = (response.get("content") or {}).get("parts") or []
    return [part["function_call"] for part in parts if part.get("function_call")]


def _seen(request: Any) -> dict[str, Any]:
    """The question to the model, as plain JSON."""
    system = request.config.system_instruction if request.config else None
    return {
        "contents": [one.model_dump(mode="json", exclude_none=True) for one in request.contents],
        "system": TypeAdapter(Any).dump_python(system, mode="json", exclude_none=True),
        "tools": list(request.tools_dict),
    }
