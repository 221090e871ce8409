"""LangChain 1 and LangGraph 1: `create_agent(..., middleware=[..., BeforehandMiddleware()])`, as the last one.

Inside a run of Beforehand each model call of the agent is a recorded decision and each tool call an operation. Outside
a run the agent works as usual. A tool declared with `@beforehand.tool` keeps its contract; any other tool is a plain
write. In a graph of your own, with `ours = BeforehandMiddleware()`: `ours.recorded_model(model, tools)` where a node
asks the model, `ToolNode(tools, awrap_tool_call=ours.awrap_tool_call)`, and in a plain node
`with current_run().step("charge"): await charge(...)`.
"""
# pyright: basic, reportMissingImports=false
# The host is in an environment of its own, so its types are not known to the checkers here.

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from beforehand.agent.hosted import (
    HostControl,
    HostedRun,
    TurnSettings,
    described_tool,
    has_own_result,
    in_hosted_run,
    name_calls,
)
from beforehand.agent.tool import Tool
from beforehand.errors import ContractError, UsageError
from beforehand.hosts import check_named, checked_clauses, supported
from beforehand.model.outcome import Outcome
from beforehand.model.values import json_form
from beforehand.policies import Retry

if TYPE_CHECKING:
    from beforehand.loop.route import Route

with supported("langchain", "1.2.18", "2", "langchain"):
    from typing import NotRequired

    from langchain.agents.middleware import (
        AgentMiddleware,
        AgentState,
        HumanInTheLoopMiddleware,
        ModelRequest,
        ModelResponse,
    )
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        ToolMessage,
        convert_to_messages,
        messages_from_dict,
        messages_to_dict,
    )
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import BaseTool
    from langchain_core.tools import tool as tool_of_host
    from langgraph.config import get_config
    from langgraph.errors import GraphInterrupt
    from langgraph.prebuilt.tool_node import msg_content_output
    from langgraph.types import Command
    from pydantic import TypeAdapter

AnyTool = Tool[..., Any]
_CONVERSATION: Final = "beforehand_conversation"
_INSTEAD: Final = "agent.ainvoke(...)"
_INTERRUPT: Final = "interrupt"
_COMMAND: Final = "langgraph:command"
_CHECKPOINTER: Final = "__pregel_checkpointer"
_READ: Final = "__pregel_read"
"""The key under which LangGraph keeps the function that reads the channels of a graph; they are named after nodes."""
_SCRATCHPAD: Final = "__pregel_scratchpad"
"""The key under which LangGraph keeps the answers that `interrupt` returns in the configuration of a task."""
_JSON: Final[Any] = TypeAdapter(Any)


class BeforehandState(AgentState):  # type: ignore[misc]  # the checkers do not know the host
    """The state of an agent, with the name of the present conversation in its run."""

    beforehand_conversation: NotRequired[str]  # type: ignore[valid-type]  # as above


class BeforehandMiddleware(AgentMiddleware):  # type: ignore[misc]  # as above
    """Records what an agent of LangChain does in a run of Beforehand.

    `approve` names tools that a person approves in Beforehand's inbox, with the exact arguments. `clauses` are those of
    `@beforehand.tool` for functions of the host, by name: `clauses={"look": {"effect": "read"}}`. `differs="note"`
    accepts a question that differs from the recorded one after a crash, and uses the recorded answer. `timeout` and
    `retry` apply to one model call. In a run the models of `route` are asked in the place of the agent's own.
    """

    state_schema = BeforehandState

    def __init__(
        self,
        *,
        approve: tuple[str, ...] = (),
        clauses: Mapping[str, Mapping[str, Any]] | None = None,
        differs: Literal["diverge", "note"] = "diverge",
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        route: Route | None = None,
    ) -> None:
        super().__init__()
        self._route = route
        self.tools: list[Any] = []
        self._approve = approve
        self._clauses = checked_clauses(clauses)
        self._offered: set[str] = set()  # tools that a middleware adds to a question are in no list of the host
        self._turns = TurnSettings(differs, timeout, retry)

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:  # noqa: ARG002 - of the host
        """Name the conversation that begins here."""
        hosted = HostedRun.current()
        return None if hosted is None else {_CONVERSATION: hosted.begin("agent")}

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `abefore_agent`, in a thread of the host."""
        hosted = HostedRun.current()
        return None if hosted is None else hosted.from_thread(lambda: self.abefore_agent(state, runtime), _INSTEAD)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """One model call: a decision of the run, named after the conversation and its turn."""
        hosted = HostedRun.current()
        if hosted is None:
            return await handler(request)
        conversation = request.state.get(_CONVERSATION, "agent")
        turn = f"turn-{1 + sum(isinstance(one, AIMessage) for one in request.messages)}"
        with hosted.stopping():
            name = turn if conversation == "agent" else f"{conversation}.{turn}"
            return await self._asked(hosted, name, request, handler)

    async def _asked(self, hosted: HostedRun, name: str, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        _check_graph()

        async def ask(model: Any) -> dict[str, Any]:
            answer = await handler(request.override(model=model))
            if isinstance(answer, AIMessage):
                answer = ModelResponse(result=[answer])
            structured = _JSON.dump_python(answer.structured_response, mode="json")
            stored = {"messages": messages_to_dict(answer.result), "structured": structured}
            return stored | _stated_usage(answer.result)

        async def model() -> dict[str, Any]:
            if self._route is None:
                return await ask(request.model)
            return await self._route.call(ask, needs=("tools",) if request.tools else ())

        seen = {
            "messages": [_without_ids(one) for one in messages_to_dict(request.messages)],
            "system": "" if request.system_message is None else str(request.system_message.content),
            "tools": [one.get("name", "") if isinstance(one, dict) else one.name for one in request.tools],
        }
        self._offered.update(seen["tools"])
        asked = (request.model,) if self._route is None else self._route.models
        stored = cast("dict[str, Any]", await hosted.turn(name, seen, model, self._turns, asked))
        calls = [call for one in stored["messages"] for call in one["data"].get("tool_calls") or []]
        name_calls(name, calls, "id")
        structured = _structured(request, stored["structured"])
        return ModelResponse(result=messages_from_dict(stored["messages"]), structured_response=structured)

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """As `awrap_model_call`, in a thread of the host."""
        hosted = HostedRun.current()
        if hosted is None:
            return handler(request)
        return hosted.from_thread(lambda: self.awrap_model_call(request, hosted.in_thread(handler)), _INSTEAD)

    def recorded_model(self, model: Any, tools: Sequence[Any] = ()) -> Any:
        """A chat model with these tools, for a node of your own graph: in a run each `ainvoke` is a recorded decision.

        Asked again after a crash, a model would give its calls other ids, and the run would diverge.
        """
        if not isinstance(model, BaseChatModel):
            raise UsageError(
                f"recorded_model takes a chat model, and got a {type(model).__name__}",
                known="nothing was sent",
                next_step="give it the model itself and its tools apart: recorded_model(model, [pay])",
            )
        offered = [one if isinstance(one, (BaseTool, dict)) else tool_of_host(one) for one in tools]

        def bound(one: Any) -> Any:
            return one.bind_tools(offered) if offered else one

        async def ask(given: Any) -> Any:
            if (hosted := HostedRun.current()) is None:
                return await bound(model).ainvoke(given)
            messages = convert_to_messages([given] if isinstance(given, str) else given)
            request = ModelRequest(model=model, messages=messages, tools=offered)
            with hosted.stopping():
                name = hosted.begin("model.turn")
                answer = await self._asked(hosted, name, request, lambda one: bound(one.model).ainvoke(one.messages))
            return answer.result[0]

        def ask_in_thread(given: Any) -> Any:
            if (hosted := HostedRun.current()) is None:
                return bound(model).invoke(given)
            return hosted.from_thread(lambda: ask(given), "model.ainvoke(...)")

        return RunnableLambda(ask_in_thread, ask)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """One tool call: an operation named after the model's id of the call."""
        hosted = self._run_of(request)
        if hosted is None:
            return await handler(request)
        with hosted.stopping():
            return await self._called(hosted, request, handler)

    def _run_of(self, request: Any) -> HostedRun | None:
        """The present run, or None outside one. Raises `OutsideRun` there for a tool that a person approves."""
        name = request.tool_call["name"]
        return in_hosted_run(f"the tool {name} of approve=") if name in self._approve else HostedRun.current()

    async def _called(self, hosted: HostedRun, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        _check_graph()
        tools = self._offered | {one.name for one in request.runtime.tools}
        check_named("approve=", self._approve, tools)
        check_named("clauses=", self._clauses, tools)
        call = request.tool_call
        if not call.get("id"):
            raise ContractError(
                f"the call of the tool {call['name']} has no id, so its operation cannot be named",
                known="nothing was sent",
                next_step="use a model that gives each tool call an id",
            )
        if request.tool is None:
            return await handler(request)  # the host tells the model that there is no such tool
        ours = _declared(request.tool)
        if ours is not None:
            one = ours.asking() if call["name"] in self._approve else ours
            return _message(call, await hosted.call_checked(call["id"], one, call["args"]), ours=True)
        described, answers = self._tool_of(request.tool, call["args"]), list[Any]()
        while True:
            outcome, control = await hosted.call_body(
                call["id"], described, call["args"], lambda: _performed(request, handler, answers)
            )
            if control is None:
                return _message(call, outcome)
            if control.get("kind") != _INTERRUPT:
                return _restored(call, control)
            answers.append(_resume_value(await hosted.ask(call["id"], control["message"])))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """As `awrap_tool_call`, in a thread of the host."""
        hosted = self._run_of(request)
        if hosted is None:
            return handler(request)
        return hosted.from_thread(lambda: self.awrap_tool_call(request, hosted.in_thread(handler)), _INSTEAD)

    def _tool_of(self, one: Any, arguments: Mapping[str, Any]) -> AnyTool:
        """A tool of the host as one of Beforehand."""
        shown = one.tool_call_schema
        schema = shown if isinstance(shown, dict) else shown.model_json_schema()
        return described_tool(
            one.name, schema, self._clauses.get(one.name, {}), arguments=arguments,
            description=one.description or "", asked=one.name in self._approve,
        )  # fmt: skip


async def _performed(request: Any, handler: Callable[[Any], Awaitable[Any]], answers: list[Any]) -> Any:
    """The content of what the tool returned. Raises `HostControl` for what is not a success.

    `answers` are those of people to what the tool asked with `interrupt`. As in LangGraph, the tool begins anew with
    each answer, so what it does before it asks must be safe to repeat.
    """
    configurable = request.runtime.config.get("configurable", {})
    if _SCRATCHPAD in configurable:
        # A scratchpad of its own for each execution: the host copies the configuration before it awaits anything.
        request.runtime.config["configurable"] = {
            **configurable,
            _SCRATCHPAD: dataclasses.replace(
                configurable[_SCRATCHPAD], resume=list(answers), interrupt_counter=itertools.count().__next__
            ),
        }
    try:
        answer = await handler(request)
    except GraphInterrupt as interrupt:
        value = interrupt.args[0][0].value
        text = value if isinstance(value, str) else _JSON.dump_json(value).decode()
        raise HostControl(_INTERRUPT, text, {"kind": _INTERRUPT, "message": text}) from interrupt
    if isinstance(answer, Command) and isinstance(answer.update, dict | None) and _named(answer.goto):
        return {_COMMAND: _plain_command(answer)}
    if not isinstance(answer, ToolMessage):
        raise UsageError(
            f"the tool {request.tool_call['name']} returned a {type(answer).__name__}, which no record holds",
            next_step="return a text, or a Command with an update by name and the name of a node, from the tool",
        )
    if answer.status == "error":  # the host refused the arguments: the tool was not called
        raise HostControl("error", str(answer.content), {"content": answer.content})
    return answer.content


def _named(goto: Any) -> bool:
    """True if `goto` names nodes; a `Send` holds objects of the process."""
    return isinstance(goto, str) or (isinstance(goto, list | tuple) and all(isinstance(one, str) for one in goto))


def _plain_command(command: Any) -> dict[str, Any]:
    """A command of a tool to its graph, as plain JSON."""
    update = {
        name: messages_to_dict(value) if name == "messages" else _JSON.dump_python(value, mode="json")
        for name, value in (command.update or {}).items()
    }
    return {"graph": command.graph, "update": update, "goto": command.goto}


def _command(stored: Mapping[str, Any]) -> Any:
    """The recorded command, with its messages as the host's."""
    update = {
        name: messages_from_dict(value) if name == "messages" else value for name, value in stored["update"].items()
    }
    return Command(graph=stored["graph"], update=update, goto=stored["goto"])


def _resume_value(answer: str) -> Any:
    """The answer of a person as `interrupt` returns it: JSON where it is JSON, else the text."""
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError:
        return answer


def _message(call: Mapping[str, Any], outcome: Outcome[Any], *, ours: bool = False) -> Any:
    """The outcome of an operation as the host's message to the model. The host has not seen the values of `ours`."""
    plain = has_own_result(outcome)
    content = outcome.value if plain else outcome.as_text()
    if plain and isinstance(content, dict) and _COMMAND in content:
        return _command(content[_COMMAND])
    shown = content if isinstance(content, (str, list)) else msgspec.json.encode(content, enc_hook=json_form).decode()
    if ours and isinstance(content, list):  # of values, as a rule; blocks of a message stay
        shown = msg_content_output(msgspec.to_builtins(content, enc_hook=json_form)) or "[]"
    status = "success" if outcome.status == "succeeded" else "error"
    return ToolMessage(shown, name=call["name"], tool_call_id=call["id"], status=status)


def _restored(call: Mapping[str, Any], control: Mapping[str, Any]) -> Any:
    text = control.get("content", control.get("message", ""))
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error")


def _declared(one: Any) -> AnyTool | None:
    """The Beforehand tool behind a tool of the host, if there is one."""
    functions = (getattr(one, "coroutine", None), getattr(one, "func", None))
    return next((function for function in functions if isinstance(function, Tool)), None)


def _stated_usage(messages: list[Any]) -> dict[str, Any]:
    """The usage that the service stated with its answer, and the names that stand beside it."""
    said = next((one for one in messages if isinstance(one, AIMessage) and one.usage_metadata), None)
    if said is None:
        return {}
    named = said.response_metadata
    request = named.get("request_id") or named.get("id")
    return {
        "usage": dict(said.usage_metadata), "model": named.get("model_name") or named.get("model"),
        "service": named.get("model_provider"), "request": request,
    }  # fmt: skip


def _structured(request: Any, stored: Any) -> Any:
    """The structured answer as the type that the agent asks for."""
    schema = getattr(request.response_format, "schema", None)
    if stored is None or schema is None or isinstance(schema, dict):
        return stored
    return TypeAdapter(schema).validate_python(stored)


def _without_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a model is shown it: the host draws its id anew in each process."""
    return {**message, "data": {name: part for name, part in message["data"].items() if name != "id"}}


def _check_graph() -> None:
    """Raise `UsageError` for a graph that would ask people outside a tool, or whose state the host keeps too."""
    settings, asks = get_config().get("configurable", {}), HumanInTheLoopMiddleware.__name__
    channels = (one for one in getattr(settings.get(_READ), "args", ()) if isinstance(one, Mapping))
    if any(f"branch:to:{asks}.after_model" in one for one in channels):
        raise UsageError(
            f"{asks} interrupts the graph between its nodes, and the agent would end in this run without a result",
            known="nothing was sent",
            next_step=f'use BeforehandMiddleware(approve=("pay",)) in place of {asks}: it asks in the inbox',
        )
    if settings.get(_CHECKPOINTER) is not None:  # after a crash one of the two states would be ahead
        raise UsageError(
            "this agent has a checkpointer and runs in a run of Beforehand: both would keep its state",
            known="nothing was sent",
            next_step="create the agent without checkpointer=; the journal continues it after a crash",
        )
