"""CrewAI 1: `durable(crew)`, or `durable(agent)`, `durable(llm)` and `durable(tool)` for parts of one.

Inside a run of Beforehand each model call of the agents is a recorded decision and each tool call an operation. Outside
a run the crew works as usual. A tool declared with `@beforehand.tool` can be in the list given to `durable`, and keeps
its contract; any other tool is a plain write. `@human_feedback(provider=BeforehandFeedback())` asks in the inbox.
"""
# pyright: basic, reportMissingImports=false
# The host is in an environment of its own, so its types are not known to the checkers here.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import msgspec

from beforehand.agent.hosted import (
    HostedRun,
    TurnSettings,
    described_tool,
    has_own_result,
    in_hosted_run,
    name_calls,
)
from beforehand.agent.tool import Tool
from beforehand.engine.current_operation import AT
from beforehand.errors import Ambiguous, UsageError
from beforehand.hosts import check_named, checked_clauses, mixed, mixed_copy, server_error, supported
from beforehand.model.outcome import Outcome
from beforehand.policies import Retry

with supported("crewai", "1.15.0", "2", "crewai"):
    from crewai import Agent, Crew
    from crewai.flow.async_feedback.types import HumanFeedbackProvider
    from crewai.llms.base_llm import BaseLLM
    from crewai.tasks.llm_guardrail import LLMGuardrail
    from crewai.tools import BaseTool
    from crewai.tools.base_tool import Tool as FunctionTool
    from crewai.types.usage_metrics import UsageMetrics
    from crewai.utilities.llm_utils import create_llm
    from crewai.utilities.string_utils import sanitize_tool_name
    from pydantic import BaseModel, TypeAdapter, create_model

AnyTool = Tool[..., Any]
_INSTEAD: Final = "crew.kickoff_async(...)"


class _Settings(NamedTuple):
    approve: tuple[str, ...]
    clauses: Mapping[str, Mapping[str, Any]]
    turns: TurnSettings
    others: frozenset[str] | None = None  # where one agent has MCP servers: the names of all tools beside theirs

    def check(self, tools: set[str]) -> None:
        """Raise `UsageError` for names that are none of these tools."""
        check_named("approve=", self.approve, tools)
        check_named("clauses=", self.clauses, tools)


def durable(
    part: Any,
    *,
    approve: tuple[str, ...] = (),
    clauses: Mapping[str, Mapping[str, Any]] | None = None,
    differs: Literal["diverge", "note"] = "diverge",
    timeout: timedelta | None = None,
    retry: Retry | None = None,
) -> Any:
    """Record what a crew, an agent, a model or a tool (of the host, or of Beforehand) does in a run.

    A crew or an agent is changed and returned; a model or a tool is copied. `approve` names tools that a person
    approves in Beforehand's inbox, with the exact arguments. `clauses` are those of `@beforehand.tool` for tools of the
    host, by name: `clauses={"look": {"effect": "read"}}`. `differs="note"` accepts a question that differs from the
    recorded one after a crash, and uses the recorded answer. `timeout` and `retry` apply to one model call. Raises
    `UsageError` for an object that cannot be recorded.
    """
    turns = TurnSettings(differs, timeout, retry)
    parts = [*part.agents, part.manager_agent, *part.tasks] if isinstance(part, Crew) else [part]
    tools = _names(tool for one in parts for tool in _tools_of(one))
    served = sum(bool(getattr(one, "mcps", None)) for one in parts)
    settings = _Settings(approve, checked_clauses(clauses), turns, frozenset(tools) if served == 1 else None)
    made = _durable(part, settings)
    if not served:
        settings.check(tools)
    return made


def _durable(part: Any, settings: _Settings) -> Any:
    if isinstance(part, _RecordedModel) or part is None:
        return part
    if isinstance(part, _RecordedTool):
        return _also(part, settings)
    if isinstance(part, Crew):
        return _crew(part, settings)
    if isinstance(part, Agent):
        return _agent(part, settings)
    if isinstance(part, BaseLLM):
        return mixed_copy(_RecordedModel, part, _beforehand_settings=settings)
    if isinstance(part, BaseTool):  # a cached result would answer calls of other runs, and not the same in a replay
        made = mixed_copy(_RecordedTool, part, _beforehand_settings=settings, cache_function=lambda *_: False)
        if hasattr(part, "_client_factory"):
            made._client_factory = _client_of(part._client_factory)  # noqa: SLF001 - of a tool of an MCP server
        return made
    if isinstance(part, Tool):
        return _declared(part, settings)
    raise UsageError(
        f"a {type(part).__name__} cannot be made durable",
        known="nothing was sent",
        next_step="give durable() a Crew, an Agent, a model or a tool",
    )


def _also(tool: Any, settings: _Settings) -> Any:
    """The recorded tool under these settings too: those that it has already hold as well."""
    made = tool.model_copy()
    made.__dict__["_beforehand_settings"] = _both(tool, settings)
    return made


def _both(part: Any, settings: _Settings) -> _Settings:
    """The settings of a part that may be durable already, and these."""
    known: _Settings | None = part.__dict__.get("_beforehand_settings")
    if known is None:
        return settings
    others = None if known.others is None or settings.others is None else known.others | settings.others
    return _Settings((*known.approve, *settings.approve), {**known.clauses, **settings.clauses}, known.turns, others)


def _tools_of(part: Any) -> Iterable[Any]:
    """The tools of an agent or a task; a tool itself."""
    return [part] if isinstance(part, BaseTool) else getattr(part, "tools", None) or ()


def _names(tools: Iterable[Any]) -> set[str]:
    """The names of tools, each also as a model sees it."""
    return {one for tool in tools for one in (tool.name, sanitize_tool_name(tool.name))}


def _crew(crew: Any, settings: _Settings) -> Any:
    _check_crew(crew)
    for agent in [*crew.agents, *([crew.manager_agent] if crew.manager_agent else [])]:
        _agent(agent, settings)
    for name in ("manager_llm", "planning_llm", "function_calling_llm"):
        if getattr(crew, name, None) is not None:
            setattr(crew, name, _durable(create_llm(getattr(crew, name)), settings))
    for task in crew.tasks:
        task.tools = [_durable(one, settings) for one in task.tools or []]
        for guardrail in [task._guardrail, *task._guardrails]:  # noqa: SLF001 - one that is a text asks a model
            if isinstance(guardrail, LLMGuardrail):
                guardrail.llm = _durable(guardrail.llm, settings)
        if task.agent is not None:
            _agent(task.agent, settings)
    return crew


def _check_crew(crew: Any) -> None:
    """Raise `UsageError` for what a crew does beside its models and tools."""
    if crew.memory:
        raise _unrecorded("the crew has a memory of its own (memory=True)", "memory=False, and receipts or run.facts")
    if getattr(crew, "checkpoint", None):
        raise _unrecorded("the crew keeps checkpoints (checkpoint=)", "no checkpoint=; the journal continues it")
    if crew.planning and crew.planning_llm is None:
        raise _unrecorded("CrewAI chooses the model that plans (planning=True)", "Crew(planning_llm=...)")
    if any(task.human_input for task in crew.tasks):
        raise _unrecorded("a task asks on the terminal (human_input=True)", "await run.ask(...) beside the crew")


def _agent(agent: Any, settings: _Settings) -> Any:
    if getattr(agent, "apps", None):
        raise _unrecorded(
            f"the agent {agent.role} takes tools from apps", "a tool declared with @beforehand.tool for each"
        )
    if any(isinstance(one, str) for one in agent.mcps or ()):
        raise _unrecorded(
            f"the agent {agent.role} names an MCP server by a text, and CrewAI repeats calls of its tools by itself",
            "MCPServerHTTP(url=...) of crewai.mcp",
        )
    if not issubclass(type(agent), _WithServers):
        object.__setattr__(agent, "__class__", mixed(_WithServers, cast("Any", type(agent))))
    agent.__dict__["_beforehand_settings"] = _both(agent, settings)
    agent.llm = _durable(agent.llm, settings)
    if getattr(agent, "_declared_llm", None) is not None:
        agent._declared_llm = agent.llm  # noqa: SLF001 - the host puts it back when a role is filled in
    agent.function_calling_llm = _durable(agent.function_calling_llm, settings)
    agent.tools = [_durable(one, settings) for one in agent.tools or []]
    return agent


def _unrecorded(what: str, instead: str) -> UsageError:
    return UsageError(f"{what}, which no record holds", known="nothing was sent", next_step=f"use {instead}")


class _WithServers:
    """A durable agent: tools of its MCP servers, which the host lists when a task begins, are recorded as others."""

    def get_mcp_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """As the host's."""
        bare = _Settings((), {}, TurnSettings())  # of a copy that the host has made
        settings = self.__dict__.get("_beforehand_settings", bare)
        tools = cast("Any", super()).get_mcp_tools(*args, **kwargs)
        if settings.others is not None:
            settings.check({*settings.others, *_names(tools)})
        return [_durable(one, settings) for one in tools]


def _client_of(factory: Callable[[], Any]) -> Callable[[], Any]:
    """Makes clients of an MCP server as the host's factory does. In an operation a client sends a call once.

    The host's would send it again after a time limit, and would take an error for a result.
    """

    def client() -> Any:
        made = factory()
        if AT.get() is None:
            return made
        made.max_retries, sent = 1, made._call_tool_impl  # noqa: SLF001 - it has no public name

        async def call(name: str, arguments: Any) -> Any:
            result = await sent(name, arguments)
            if result.is_error:
                raise server_error(name, result.content)
            return result

        made._call_tool_impl = call  # noqa: SLF001 - as above
        return made

    return client


# --- calls of tools ---------------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """A call that a recorded answer of a model chose. One without a name is of an answer in plain text: of any tool."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None


_CHOSEN: Final[WeakKeyDictionary[Any, dict[str, list[_Call]]]] = WeakKeyDictionary()
"""The calls of the last answer of each agent that no tool has made yet, by the instance of the run."""


class _RecordedTool(BaseTool):  # type: ignore[misc]  # the checkers do not know the host
    """A tool whose calls are operations in a run. It is mixed into the tool's own class, which the host asks for."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """As the host's, which would call the function of some tools directly."""
        return BaseTool.run(self, *args, **kwargs)

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """As `run`."""
        return await BaseTool.arun(self, *args, **kwargs)

    def _run_of_call(self) -> HostedRun | None:
        """The present run, or None outside one. Raises `OutsideRun` there for a tool that a person approves."""
        asked = not _names([self]).isdisjoint(self.__dict__["_beforehand_settings"].approve)
        return in_hosted_run(f"the tool {self.name} of approve=") if asked else HostedRun.current()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        hosted = self._run_of_call()
        if hosted is None:
            return super()._run(*args, **kwargs)
        host = super()._run

        def perform(given: Any) -> Any:
            return _finished(host(*given[0], **given[1]))

        body = hosted.in_thread(perform)
        return hosted.from_thread(lambda: self._called(hosted, args, kwargs, body), _INSTEAD)

    async def _arun(self, *args: Any, **kwargs: Any) -> Any:
        hosted = self._run_of_call()
        if hosted is None:
            return await super()._arun(*args, **kwargs)
        host = super()._arun
        return await hosted.on_loop(
            lambda: self._called(hosted, args, kwargs, lambda given: host(*given[0], **given[1]))
        )

    async def _called(
        self, hosted: HostedRun, args: Any, kwargs: dict[str, Any], body: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        settings: _Settings = self.__dict__["_beforehand_settings"]
        arguments = {**dict(zip(self.args_schema.model_fields, args, strict=False)), **kwargs}
        plain = TypeAdapter(Any).dump_python(arguments, mode="json")
        name = _claimed(hosted, self, plain)
        ours = self.__dict__.get("_beforehand_tool")
        with hosted.stopping():  # the host would turn an exception into a text for the model
            if ours is not None:
                one = ours.asking() if ours.name in settings.approve else ours
                return _shown(await hosted.call_checked(name, one, plain))
            clauses = next((settings.clauses[one] for one in _names([self]) if one in settings.clauses), {})
            described = described_tool(
                sanitize_tool_name(self.name), {}, clauses, arguments=plain, description=self.description,
                asked=not _names([self]).isdisjoint(settings.approve),
            )  # fmt: skip

            async def performed() -> Any:
                value = await body((args, kwargs))
                if type(value).__name__ == "ToolFailure":  # of later versions; no proof that nothing happened
                    raise Ambiguous(f"{self.name} reports that it failed: {value.message}")
                return TypeAdapter(Any).dump_python(value, mode="json")

            outcome, _ = await hosted.call_body(name, described, plain, performed)
            return _shown(outcome)


def _finished(value: Any) -> Any:
    """The value of a tool that may be a coroutine, in a thread of its own."""
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def _claimed(hosted: HostedRun, tool: Any, arguments: Mapping[str, Any]) -> str:
    """The id that the model gave this call; the host does not pass it on. Equal calls of one answer are alike."""
    name = sanitize_tool_name(tool.name)
    for calls in _CHOSEN.setdefault(hosted.instance, {}).values():
        for at, call in enumerate(calls):
            if call.arguments is None:
                return call.id  # the call of an answer in plain text, which has one
            if call.name == name and _as_called(tool, call.arguments) == arguments:
                return calls.pop(at).id
    return hosted.begin(f"call-{name}")


def _as_called(tool: Any, chosen: Mapping[str, Any]) -> Any:
    """The arguments of a model as the host passes them to the tool."""
    try:
        return tool.args_schema.model_validate(chosen).model_dump(mode="json")
    except ValueError:
        return chosen


def _declared(ours: AnyTool, settings: _Settings) -> Any:
    """A Beforehand tool as one of the host."""

    async def unused(**arguments: Any) -> Any:
        return await ours(**arguments)

    shape = ours.spec
    fields: dict[str, Any] = {
        name: (kind, ... if name in shape.required else shape.defaults.get(name)) for name, kind in shape.types.items()
    }
    made = FunctionTool(
        name=ours.name, description=ours.__doc__ or ours.name, func=unused,
        args_schema=create_model(ours.name, **fields),
    )  # fmt: skip
    recorded = _durable(made, settings)
    recorded.__dict__["_beforehand_tool"] = ours
    return recorded


def _shown(outcome: Outcome[Any]) -> Any:
    """The outcome of an operation as the answer of a tool. The model receives a failure as text."""
    own = has_own_result(outcome)
    return TypeAdapter(Any).dump_python(outcome.value, mode="json") if own else outcome.as_text()


# --- calls of models --------------------------------------------------------------------------------------------------


class _RecordedModel(BaseLLM):  # type: ignore[misc]  # as above
    """A model whose answers are recorded in a run. It is mixed into the model's own class, which the host asks for."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """The answer, from the record if it is there."""
        hosted = HostedRun.current()
        if hosted is None:
            return super().call(messages, *args, **kwargs)
        host = super().call

        def perform(_: Any) -> Any:
            with _counting(self) as counted:
                return _stored(host(messages, *args, **kwargs)) | counted.stated()

        ask = hosted.in_thread(perform)
        return hosted.from_thread(lambda: self._answer(hosted, messages, args, kwargs, ask), _INSTEAD)

    async def acall(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """As `call`."""
        hosted = HostedRun.current()
        if hosted is None:
            return await super().acall(messages, *args, **kwargs)
        host = super().acall

        async def ask(_: Any) -> Any:
            with _counting(self) as counted:
                return _stored(await host(messages, *args, **kwargs)) | counted.stated()

        return await hosted.on_loop(lambda: self._answer(hosted, messages, args, kwargs, ask))

    def _track_token_usage_internal(self, usage_data: Any) -> None:
        super()._track_token_usage_internal(usage_data)
        if (call := _COUNTED.get()) is not None and (used := UsageMetrics.from_provider_dict(usage_data)) is not None:
            call.used.add_usage_metrics(used)

    def _emit_call_completed_event(self, *args: Any, **kwargs: Any) -> None:
        super()._emit_call_completed_event(*args, **kwargs)
        if (call := _COUNTED.get()) is not None:
            call.request = kwargs.get("response_id") or call.request

    async def _answer(
        self, hosted: HostedRun, messages: Any, args: Any, kwargs: Any, ask: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        named = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
        if named.get("available_functions"):
            problem = _unrecorded("the model calls tools by itself (available_functions=)", "an agent with these tools")
            raise hosted.stop(problem)
        who = getattr(named.get("from_agent"), "role", None) or "model"
        name = hosted.begin(f"{''.join(' ' if one in '/~#' else one for one in who).strip()[:100]}.turn")
        shown = TypeAdapter(Any).dump_python(messages, mode="json", fallback=str)
        seen = {"messages": shown, "tools": [one["function"]["name"] for one in named.get("tools") or []]}

        asked: list[Any] = []

        async def model() -> Any:
            asked.append(None)
            return await ask(None)

        with hosted.stopping():
            stored = await hosted.turn(name, seen, model, self.__dict__["_beforehand_settings"].turns, (self.model,))
        if not asked and "usage" in stored:  # the crew's own sum has the tokens of recorded answers too
            super()._track_token_usage_internal(stored["usage"])
        calls = stored.get("calls", [])
        name_calls(name, calls, "id")
        chosen = [_Call(one["id"], one["function"]["name"], _arguments(one)) for one in calls]
        if "text" in stored:
            chosen = [_Call(f"{name}.call", "", None)]
        _CHOSEN.setdefault(hosted.instance, {})[who] = chosen
        if "model" in stored:
            return named["response_model"].model_validate(stored["model"])
        return stored.get("text", calls)


class _Counted:
    """The tokens of one call of a model, as the host counts them, and the service's id of the answer."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.used = UsageMetrics()
        self.request = ""

    def stated(self) -> dict[str, Any]:
        """The usage as the record has it; nothing where the model states none."""
        used, model = self.used, self.model
        if not used.successful_requests:
            return {}
        counts = {
            "input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens,
            "cached_tokens": used.cached_prompt_tokens, "cache_creation_tokens": used.cache_creation_tokens,
            "reasoning_tokens": used.reasoning_tokens,
        }  # fmt: skip
        return {"usage": counts | {"model": model.model, "service": model.provider, "request": self.request}}


_COUNTED: Final[ContextVar[_Counted | None]] = ContextVar("beforehand_crewai_counted", default=None)
"""The call of a model that this code makes: calls at the same time share one model, and its sum of tokens."""


@contextlib.contextmanager
def _counting(model: Any) -> Generator[_Counted]:
    """Count the tokens of the call made inside. An exception states those of an answer that was not used."""
    token = _COUNTED.set(counted := _Counted(model))
    try:
        yield counted
    except Exception as error:
        with contextlib.suppress(AttributeError):  # an exception that takes no attributes
            error.reply = counted.stated()  # type: ignore[attr-defined]  # as of ModelError
        raise
    finally:
        _COUNTED.reset(token)


_PARAMETERS: Final = ("tools", "callbacks", "available_functions", "from_task", "from_agent", "response_model")


def _stored(answer: Any) -> dict[str, Any]:
    """An answer as plain JSON: a text, a structured answer, or calls, which services write in four ways."""
    if isinstance(answer, BaseModel):
        return {"model": answer.model_dump(mode="json")}
    if answer is None:
        raise ValueError("the model gave no answer")
    if not isinstance(answer, list):
        return {"text": str(answer)}
    return {"calls": [_plain_call(one) for one in answer]}


def _plain_call(one: Any) -> dict[str, Any]:
    parts: dict[str, Any] = one if isinstance(one, dict) else {name: getattr(one, name, None) for name in _FIELDS}
    inner = parts.get("function") or parts.get("function_call") or parts
    inner = inner if isinstance(inner, dict) else {name: getattr(inner, name, None) for name in _FIELDS}
    given: Any = next((inner[name] for name in ("arguments", "input", "args") if inner.get(name)), {})
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    known = parts.get("call_id") or parts.get("id") or parts.get("toolUseId") or inner.get("id")
    return {
        "id": known or "", "type": "function",
        "function": {"name": sanitize_tool_name(inner.get("name") or ""), "arguments": text},
    }  # fmt: skip


_FIELDS: Final = ("call_id", "id", "toolUseId", "function", "function_call", "name", "arguments", "input", "args")


def _arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        values: object = msgspec.json.decode(call["function"]["arguments"])
    except msgspec.DecodeError:
        values = None
    return values if isinstance(values, dict) else {}


# --- people -----------------------------------------------------------------------------------------------------------


class BeforehandFeedback(HumanFeedbackProvider):  # type: ignore[misc]  # as above
    """Asks for the feedback of a flow in Beforehand's inbox: `@human_feedback(..., provider=BeforehandFeedback())`.

    If the flow names outcomes (`emit=`), the answer is one of them. The run waits without a process.
    """

    def request_feedback(self, context: Any, flow: Any) -> str:  # noqa: ARG002 - of the host
        """The answer of a person."""
        hosted = HostedRun.current()
        if hosted is None:
            raise UsageError(
                f"the flow asks for feedback on {context.method_name} outside a run",
                known="no question was sent",
                next_step="run the flow in an @agent function that Beforehand runs",
            )
        text = f"{context.message}: {context.method_output}"
        name = context.method_name
        return hosted.from_thread(lambda: hosted.ask(name, text, tuple(context.emit or ())), "flow.kickoff_async()")
