"""`@tool`: a plain function whose effect the runtime records before it is attempted.

The function keeps its signature, docstring and types. Undeclared means a plain write: attempted
once, never repeated on a guess. The file is long because every clause of a tool is declared and documented here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from beforehand.agent.call import metadata_of, outcome_of, result_of
from beforehand.agent.compensation import Compensate, Confirm, with_compensation
from beforehand.agent.conditions import checked_gate, gated
from beforehand.agent.contract_checks import check_clauses, checked_classifier, rejections_of
from beforehand.agent.handlers import Handlers
from beforehand.agent.signatures import (
    check_names,
    coroutine_code,
    is_async,
    shape_of,
    tool_name,
    without_operation,
)
from beforehand.engine.active_run.run import FEWEST_CALLS
from beforehand.engine.active_run.scopes import SCOPE
from beforehand.engine.calls import keep_unbegun
from beforehand.engine.steps import NO_METADATA, CallMetadata
from beforehand.engine.tool_protocol import Classifier, Code, ToolCode
from beforehand.errors import ContractError
from beforehand.model.contract import (
    Contract,
    Effect,
    Key,
    Natural,
    Once,
    OnUnknown,
    Pending,
)
from beforehand.model.outcome import Outcome
from beforehand.model.titles import checked_title
from beforehand.model.tool_spec import Shape, ToolSpec, spec_of
from beforehand.model.values import ResultCodec, codec_for
from beforehand.policies import Budget, Gate, Retry, milliseconds

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_TIMEOUT = timedelta(seconds=60)


class Tool(ToolCode, Generic[P, R]):
    """A tool. Call it inside a run. `outcome` does not raise on a failure; `options` changes one call's settings."""

    def __init__(self, function: Callable[P, Any], contract: Contract, spec: ToolSpec, *, serves: bool = False) -> None:
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.spec, self.serves = spec, serves
        self.__signature__ = spec.signature
        # `inspect.iscoroutinefunction` reads these: frameworks take a tool for what it is, a coroutine function.
        self.__code__, self.__defaults__, self.__kwdefaults__ = coroutine_code(function), None, None
        self.name = self.__name__ = contract.tool  # frameworks take a function's name for that of the tool
        self.codec = codec_for(_result_type(spec))
        self.declare(msgspec.structs.replace(contract, may_be_null=_reads_null(self.codec)))
        parameters = frozenset(spec.types) if serves else None
        self.body = Code(function, is_async(function), contract.timeout_ms, parameters)
        self.companions: dict[str, Tool[Any, Any]] = {}
        self.step: str | None = None
        """The explicit name of the step, if this is a call's own configuration of a tool."""
        self.at_once = False
        """True if an irreversible call inside a transaction is sent at once."""
        self.about: CallMetadata = NO_METADATA
        self.handlers, self.classifier = {}, None
        self.late, self.gone, self.asks_only = False, bool, False
        self.where = _place(function)

    def __repr__(self) -> str:
        """The tool's name and kind."""
        return f"<tool {self.name} ({self.contract.effect})>"

    # --- calling -----------------------------------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        """Perform the call as a step of the current run, and return its result.

        Raises `Rejected` or another `OperationFailed` if nothing happened, `OutsideRun` outside a run, and
        `ArgumentError` for a value that its annotation excludes.
        """
        return self._called(result_of, args, kwargs)

    def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, Outcome[R]]:
        """Perform the call, and return its outcome. A failure is not raised."""
        return self._called(outcome_of, args, kwargs)

    def _called(
        self, perform: Callable[..., Coroutine[object, object, Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Coroutine[object, object, Any]:
        """The call as a coroutine, kept with its place: a run does not complete while it was never awaited."""
        call = perform(self, self.spec.bind(args, kwargs, strict=True), self.step, at_once=self.at_once)
        if (scope := SCOPE.get()) is not None:
            active = scope.active
            caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # agent code that calls
            active.calls[call] = f"{self.name}(...) ({caller.f_code.co_filename}:{caller.f_lineno})"
            if len(active.calls) > active.calls_kept:
                keep_unbegun(active.calls)
                active.calls_kept = max(FEWEST_CALLS, 2 * len(active.calls))
        return call

    def options(
        self,
        *,
        step: str | None = None,
        timeout: timedelta | None = None,
        retry: Retry | None = None,
        on_unknown: OnUnknown | None = None,
        hold: bool = True,
        compensate: Tool[..., Any] | None = None,
        confidence: float | None = None,
        taint: str = "",
        again: str | None = None,
    ) -> Tool[P, R]:
        """The same tool with other settings for one call. `step` names the step explicitly, once per run.

        An escalation policy receives the caller's `confidence` (from 0 to 1, by default that of the previous decision)
        and the source that touched the arguments (`taint="web"`). Inside a transaction `hold=False` sends an
        irreversible effect immediately, and `compensate` is the tool that undoes this call; its first parameter is the
        operation. Raises `ContractError` for a tool that cannot compensate it. `again="the reason"` sends the call
        although an effect on the same subject is pending. The reason is recorded.
        """
        contract = msgspec.structs.replace(
            self.contract,
            timeout_ms=self.contract.timeout_ms if timeout is None else milliseconds(timeout),
            retry=retry or self.contract.retry,
            on_unknown=on_unknown or self.contract.on_unknown,
        )
        if compensate is not None:
            contract = with_compensation(contract, self, compensate)
        configured = _Configured(self, contract, step, at_once=not hold)
        configured.about = metadata_of(confidence, taint, again)
        return configured

    def with_body(self, function: Callable[..., Coroutine[Any, Any, R]], gone: Callable[[], bool] = bool) -> Tool[P, R]:
        """The same tool with the body of one call, which a host provides, or a block of agent code until it is gone."""
        configured = _Configured(self, self.contract, self.step, at_once=False)
        configured.body = msgspec.structs.replace(self.body, function=function, is_async=True)
        configured.gone = gone
        return configured

    def with_gate(self, gate: Gate) -> Tool[P, R]:
        """The same tool with a gate for one call. Raises `ContractError` for a read, which needs no approval."""
        if not self.asks_only:
            checked_gate(self.contract, gate, self.spec.judged)
        return _Configured(self, msgspec.structs.replace(self.contract, gate=gate), self.step, at_once=False)

    def asking(self, within: str = "") -> Tool[P, R]:
        """The same tool with a gate that asks about each call, or each that its gate or `within` does not let through.

        The people and the time limit of its own gate stay. Raises `ContractError` for what cannot be judged.
        """
        own = self.contract.gate or Gate("false")
        when = f"({own.when}) || !({within})" if within else "true"
        return self.with_gate(msgspec.structs.replace(own, when=when))

    # --- handlers ----------------------------------------------------------------------------------------

    @property
    def verify(self) -> Handlers[R]:
        """Register the function that looks up the effect: `@send_email.verify(settle_window=...)`."""
        return Handlers(self, "verify")

    @property
    def observe(self) -> Handlers[R]:
        """Register the function that reads the preconditions: `@close_ticket.observe`."""
        return Handlers(self, "observe")

    @property
    def expect(self) -> Handlers[R]:
        """Register the evidence of a success: a synchronous function that returns JSON values."""
        return Handlers(self, "expect")

    @property
    def compensate(self) -> Compensate:
        """Register the compensation: `@book.compensate(restores=True)`."""
        return Compensate(self)

    @property
    def confirm(self) -> Confirm:
        """Register the tool that completes this tool's reservation: `@reserve.confirm(expires=...)`."""
        return Confirm(self)

    @property
    def claim(self) -> Handlers[R]:
        """Register a computed business key: a synchronous function that returns text."""
        return Handlers(self, "claim")

    def gated(self, gate: str, arguments: Mapping[str, Any]) -> bool:
        """True if a call with these arguments needs approval. Raises `ConditionError` if the gate has no value."""
        return gated(gate, arguments)


class _Configured(Tool[P, R]):
    """A tool with one call's settings. It shares handlers, so a verifier registered later still counts."""

    def __init__(self, tool: Tool[P, R], contract: Contract, step: str | None, *, at_once: bool) -> None:
        self.__dict__.update(tool.__dict__)
        self.at_once = at_once
        self.declare(contract)
        self.step = step


# --- declaring -------------------------------------------------------------------------------------------------


@overload
def tool(function: Callable[P, Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: Effect = ...,
    idempotency: Key | Natural | None = ...,
    claim: str | tuple[str, ...] = ...,
    once: Once | None = ...,
    pending: Pending | None = ...,
    timeout: timedelta = ...,
    retry: Retry | None = ...,
    budget: Budget | None = ...,
    on_unknown: OnUnknown = ...,
    rejections: Collection[int] = ...,
    not_sent: Collection[int] = ...,
    classify: Classifier | None = ...,
    redact: Collection[str] = ...,
    gate: str | Gate = ...,
    name: str | None = ...,
    title: str | None = ...,
) -> _Decorator: ...


def tool(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Declare a tool. Without arguments it is a plain write, which is attempted once and never repeated on a guess.

    - `effect`: "read" or "write". Reads are retried and journaled with one record.
    - `idempotency`: `Key(ttl=...)` if the system deduplicates on `current_operation().key`, `Natural(within=...)` if
      repeating changes nothing.
    - `claim`: the parameters that name one real-world effect across all runs (an invoice number).
    - `once`: the calls of a model that count as repeats: `Once("to", "subject", within=...)`, with `reworded=True` also
      for a call in other words.
    - `pending`: the part of a success that is still pending: `Pending("an answer", about="lead")`. Until it ends, no
      further call on the same subject is sent.
    - `timeout`, `retry`, `budget`: limits that survive a crash. Without `retry` a keyed, natural or verifiable write is
      attempted for ten minutes, any other write four times.
    - `rejections`: HTTP statuses that prove a refusal. `not_sent`: statuses after which nothing landed (429, 503);
      their `Retry-After` is honored. On a write, every other status is ambiguous.
    - `classify`: a function that states what an exception of the client library proves. It receives the exception and
      returns `NotSent(...)`, `Rejected(...)`, `Ambiguous(...)`, `KeyInProgress(...)`, or None if it does not know. It
      is called before `rejections`, `not_sent` and the table of well-known exceptions are applied.
    - `on_unknown`: "suspend" (default) or "raise".
    - `redact`: parameters whose values are never stored.
    - `gate`: a condition in CEL over the parameters (`"cents > 50000"`). If it is true, a person approves the call
      before anything is sent. `Gate(...)` also sets a number of people and a time limit. A refusal raises `Declined`.
    - `title`: a sentence about a call, for people: `"refund {cents} cents to {customer}"`.

    Raises `ContractError` if the clauses contradict each other. The error names the fix.
    """
    if function is not None:
        return _declared(function, ToolClauses())
    known = ToolClauses.__struct_fields__
    if unknown := clauses.keys() - set(known):
        raise ContractError(
            f"@tool does not take {', '.join(sorted(unknown))}", known=f"it takes {', '.join(sorted(known))}"
        )
    return _Decorator(ToolClauses(**clauses))


class _Decorator:
    """The decorator that `@tool(...)` returns: it keeps the types of async and sync functions alike."""

    def __init__(self, clauses: ToolClauses) -> None:
        self._clauses = clauses

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Tool[..., Any]:
        """Declare `function`."""
        return _declared(function, self._clauses)


class ToolClauses(msgspec.Struct, frozen=True):
    """The clauses of one tool, as `tool` explains them."""

    effect: Effect = "write"
    idempotency: Key | Natural | None = None
    claim: str | tuple[str, ...] = ()
    once: Once | None = None
    pending: Pending | None = None
    timeout: timedelta = DEFAULT_TIMEOUT
    retry: Retry | None = None
    budget: Budget | None = None
    on_unknown: OnUnknown = "suspend"
    rejections: Collection[int] = ()
    not_sent: Collection[int] = ()
    classify: Classifier | None = None
    redact: Collection[str] = ()
    gate: str | Gate = ""
    name: str | None = None
    title: str | None = None


def _declared(function: Callable[..., Any], given: ToolClauses) -> Tool[..., Any]:
    called = tool_name(function) if given.name is None else given.name
    where = f"tool {called}"
    shape, serves = without_operation(shape_of(function, "tool"))
    claims = (given.claim,) if isinstance(given.claim, str) else tuple(given.claim)
    contract = Contract(
        tool=called,
        effect=given.effect,
        idempotency=given.idempotency,
        timeout_ms=milliseconds(given.timeout),
        retry=given.retry,
        budget=given.budget or Budget(),
        on_unknown=given.on_unknown,
        rejections=(
            *rejections_of(given.rejections, "rejected", where), *rejections_of(given.not_sent, "not_sent", where)
        ),
        claim=claims,
        once=given.once,
        pending=given.pending,
        gate=Gate(given.gate) if isinstance(given.gate, str) and given.gate else given.gate or None,
    )  # fmt: skip
    check_clauses(contract)
    check_names(claims, shape, f"{where}: claim=")
    check_names(given.once.parameters if given.once else (), shape, f"{where}: once=")
    check_names(given.pending.about if given.pending else (), shape, f"{where}: pending=")
    check_names(tuple(given.redact), shape, f"{where}: redact=")
    if contract.gate is not None:
        checked_gate(contract, contract.gate, shape.types.keys() - set(given.redact))
    if both := sorted(set(claims) & set(given.redact)):
        raise ContractError(
            f"{where}: {both[0]} is redacted, and a business key is stored",
            next_step=f"compute another name for the effect: @{contract.tool}.claim",
        )
    classifier = checked_classifier(given.classify, where)
    title = "" if given.title is None else _titled(given.title, contract, shape.types.keys() - set(given.redact))
    declared: Tool[..., Any] = Tool(function, contract, spec_of(shape, given.redact, title), serves=serves)
    declared.classifier = classifier
    return declared


def _titled(template: str, contract: Contract, stored: Collection[str]) -> str:
    if contract.effect == "read":
        raise ContractError(
            f"tool {contract.tool} is a read: a title is for calls that people approve or resolve",
            next_step='drop title=, or drop effect="read"',
        )
    return checked_title(template, contract.tool, stored)


def tool_from(function: Callable[..., Any], timeout: timedelta) -> Tool[..., Any]:
    """A plain function as a plain write, for handlers that are operations of their own."""
    contract = Contract(function.__name__, timeout_ms=milliseconds(timeout))
    check_clauses(contract)
    shape, serves = without_operation(shape_of(function, "tool"), known=True)
    return Tool(function, contract, spec_of(shape), serves=serves)


def _result_type(shape: Shape) -> Any:
    return Any if shape.returns is inspect.Signature.empty else shape.returns


def _reads_null(codec: ResultCodec) -> bool:
    try:
        codec.decode(b"null")
    except ValueError:
        return False
    return True


def _place(function: Callable[..., Any]) -> str:
    """The place of its definition, for errors that name two places."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)
