"""The engine's interface to tools, agents, policies and tracing."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from beforehand.engine.environment import Environment
from beforehand.errors import ArgumentError
from beforehand.model.canonical.encode import canonical
from beforehand.model.contract import Contract, contract_digest
from beforehand.model.policy import Draw, PolicyFacts, Ruling
from beforehand.model.tool_spec import Subject, ToolSpec, subject_of
from beforehand.model.values import ResultCodec
from beforehand.policies import RunBudget

if TYPE_CHECKING:
    from beforehand.engine.current_operation import CurrentOperation
    from beforehand.errors import Ambiguous, KeyInProgress, NotSent, Rejected
    from beforehand.model.records import Claimed, Parent, RunStarted

_NOT_RUN: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)


Classifier: TypeAlias = Callable[[Exception], "NotSent | Rejected | Ambiguous | KeyInProgress | None"]
"""Says what an exception of a client library proves about the call that raised it; None: it does not know it."""


def can_classify(value: object) -> bool:
    """True if the value can be a classifier: a synchronous function, and not a class, which would give an instance."""
    return callable(value) and not isinstance(value, type) and not inspect.iscoroutinefunction(value)


class Code(msgspec.Struct, frozen=True):
    """A function and how to call it. `parameters` None: it takes every argument by name."""

    function: Callable[..., Any]
    is_async: bool
    timeout_ms: int = 30_000
    parameters: frozenset[str] | None = None

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the names of its `parameters`."""
        return {name: arguments[name] for name in self.parameters or () if name in arguments}


class ToolCode:
    """One tool: what it declares, and the code that performs and judges its calls. `@tool` makes it."""

    name: str
    """The name in steps, records and commands."""
    contract: Contract
    digest: str
    """The digest of its contract."""
    spec: ToolSpec
    body: Code
    codec: ResultCodec
    """The codec of its results."""
    handlers: dict[str, Code]
    """Its handlers by name: verify, observe, expect, claim."""
    classifier: Classifier | None
    """The tool's own classifier of its exceptions, if it has one."""
    late: bool
    """True if its body comes with each call: only the code of a host has it."""
    gone: Callable[[], bool]
    """Returns true once its body, a block of agent code, was cancelled and cannot be called again."""
    asks_only: bool
    """True if a call of it asks people and sends nothing: a yes settles it."""

    def declare(self, contract: Contract) -> None:
        """Take the clauses of this contract."""
        self.contract, self.digest = contract, contract_digest(contract)

    @property
    def subject(self) -> Subject:
        """The parameters that identify the subject of a call."""
        claim = self.handlers.get("claim")
        computed = claim.parameters if claim is not None else None
        return subject_of(self.contract, self.spec, computed or frozenset())

    @property
    def claims(self) -> bool:
        """True if it declares a business key."""
        return bool(self.contract.claim) or "claim" in self.handlers

    def business_key(self, arguments: Mapping[str, Any]) -> str:
        """The business key: the name of the one real-world effect of these arguments.

        Equal values have one name, in whatever order. Raises `ArgumentError` if they name none.
        """
        if (code := self.handlers.get("claim")) is not None:
            named = code.function(**code.named(arguments))
            return _text_key(named, f"the claim of {self.name}")
        parts = {name: arguments[name] for name in self.contract.claim}
        if len(parts) > 1:
            return canonical(parts).decode()
        ((name, only),) = parts.items()
        return _text_key(only, name) if only is None or isinstance(only, str) else canonical(parts).decode()

    def expected(self, arguments: Mapping[str, Any]) -> msgspec.Raw:
        """The evidence of a success. Raises `ArgumentError` unless it is plain JSON."""
        code = self.handlers["expect"]
        value = code.function(**code.named(arguments))
        try:
            return msgspec.Raw(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"the expected evidence of {self.name} cannot be recorded: {error}; nothing was sent",
                next_step=f"let @{self.name}.expect return plain JSON values",
            ) from error

    def gated(self, gate: str, arguments: Mapping[str, Any]) -> bool:
        """True if a call with these arguments needs a person's approval. Raises `ValueError` if that is undecidable."""
        raise NotImplementedError


def _text_key(key: object, what: str) -> str:
    """A business key that is one text. An empty one is refused: it would name every effect, or none."""
    if not isinstance(key, str) or not key:
        raise ArgumentError(
            f"{what}: {key!r} is not a business key",
            next_step="a business key is text that is not empty, such as an order number",
        )
    canonical({what: key})  # raises for a text that cannot be stored
    return key


class AgentCode(Protocol):
    """One agent, as an app holds it."""

    @property
    def name(self) -> str:
        """The name in records and commands."""
        ...

    @property
    def program(self) -> str:
        """The program that the agent belongs to; empty for the runtime's own agents."""
        ...

    @property
    def version(self) -> str:
        """The author's name for this version of the code; empty if there is none."""
        ...

    @property
    def deadline_ms(self) -> int | None:
        """How long a run may take from its start, in milliseconds."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """The tools whose effects must exist when a run completes."""
        ...

    @property
    def codec(self) -> ResultCodec:
        """The codec of its result."""
        ...

    def begin(
        self,
        scope: Any,  # the root Scope: what an app declares does not depend on the runs that use it
        stored_input: bytes,
    ) -> Any:
        """The coroutine of one drive of a run."""
        ...


class PolicyCode(Protocol):
    """A policy, as an app holds it."""

    @property
    def version(self) -> str:
        """The name of exactly these rules, in records and approvals."""
        ...

    @property
    def text(self) -> bytes:
        """The full text of the rules: the version is its digest."""
        ...

    @property
    def asks_queue(self) -> bool:
        """True if a rule depends on how much waits for people."""
        ...

    @property
    def remembers_ms(self) -> int:
        """How far back the history of a subject goes."""
        ...

    def subject(self, tool: str, arguments: Mapping[str, Any], /) -> str:
        """The person or thing that a call concerns; empty if that is not declared, or unknown."""
        ...

    def amount(self, tool: str, arguments: Mapping[str, Any], /) -> float | None:
        """The amount of a call; None if that is not declared, or unknown."""
        ...

    def ruling(self, facts: PolicyFacts, arguments: Mapping[str, Any], draw: Draw, /) -> Ruling:
        """The ruling of the policy. Total: a case that cannot be judged asks a person."""
        ...


class Tracing(Protocol):
    """Follows runs, where an app traces them. Nothing waits for it, and its methods raise nothing.

    A trace context is a text that is stored with the run, and means nothing to the engine.
    """

    def caller(self) -> str:
        """The trace context of the code that asks for a run now; empty if there is none."""
        ...

    def claimed(self, run: str, started: RunStarted, claim: Claimed, before: str, /) -> str:
        """The trace context of what this process is about to do with the run, for the record of its claim.

        Called in the task that drives the run. `before` is the context of the claim before this one. A `claim` under
        the token 1 creates the run, and may still be refused.
        """
        ...

    def calling(self, current: CurrentOperation, /) -> None:
        """A tool is about to be called. Called in the context in which it runs."""
        ...


class Input(msgspec.Struct, frozen=True):
    """The input of a run: the stored form and its keyed digest, its tenant, and the limits of the run, if it has any.

    `by` names the person who asks for it, if any, and `parent` the run that starts it, if one does.
    """

    stored: bytes
    digest: str
    by: str = ""
    budget: RunBudget | None = None
    tenant: str = ""
    parent: Parent | None = None


class HandlerFailed(Exception):
    """A handler ended in a way that must not be taken for the end of the task that called it."""


def begin_call(
    code: Code,
    arguments: Mapping[str, Any],
    first: tuple[Any, ...],
    environment: Environment,
    context: contextvars.Context | None = None,
    over: asyncio.Future[None] | None = None,
) -> asyncio.Future[Any]:
    """Start a call and return its future; `over` is done when it ends. Synchronous code runs in a thread."""
    context = context or contextvars.copy_context()
    named = arguments if code.parameters is None else code.named(arguments)
    if not code.is_async:
        call: asyncio.Future[Any] = context.run(environment.threads.call, lambda: _called(code.function, first, named))
        if over is not None:
            call.add_done_callback(lambda _: wake(over))
        return call
    body = code.function(*first, **named) if over is None else _waking(over, code.function, first, named)
    return asyncio.get_running_loop().create_task(body, context=context)


def _called(function: Callable[..., Any], first: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The result of a synchronous function. Raises `TypeError` if its body was not run: nothing may count as done."""
    value = function(*first, **named)
    if not isinstance(value, _NOT_RUN):
        return value
    if isinstance(value, CoroutineType):
        value.close()
        raise TypeError("a plain function gave a coroutine that never ran: declare it with async def")
    raise TypeError("a plain function gave a generator that never ran: return a list")


async def _waking(
    over: asyncio.Future[None], function: Callable[..., Any], first: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    """Signal the end of the call from within: the waiter wakes one pass of the loop sooner than by a callback."""
    try:
        return await function(*first, **named)
    finally:
        if not over.done():
            over.set_result(None)


def wake(waiter: asyncio.Future[None]) -> None:
    """Wake the waiter, unless it is awake already."""
    if not waiter.done():
        waiter.set_result(None)


async def call_handler(
    code: Code, arguments: Mapping[str, Any], first: tuple[Any, ...], environment: Environment
) -> Any:
    """Call a handler under its time limit. Raises `TimeoutError`, or the exception of the handler.

    Any other error than an `Exception` becomes `HandlerFailed`: a handler that is cancelled from within, or that raises
    `GeneratorExit`, says nothing about our own task.
    """
    call = begin_call(code, arguments, first, environment)
    try:
        done, _ = await asyncio.wait({call}, timeout=code.timeout_ms / 1000)
    except asyncio.CancelledError:
        call.cancel()
        raise
    if not done:
        call.cancel()
        call.add_done_callback(_ignore)
        raise TimeoutError(f"no answer within {code.timeout_ms / 1000:g} s")
    if call.cancelled():
        raise HandlerFailed("it was cancelled from within")
    error = call.exception()
    if error is not None and not isinstance(error, Exception):
        raise HandlerFailed(f"it raised {type(error).__name__}") from error
    return call.result()


def _ignore(call: asyncio.Future[Any]) -> None:
    """Fetch a late error, so that asyncio does not report it as forgotten."""
    if not call.cancelled():
        call.exception()
