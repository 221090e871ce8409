"""Transactions as agent code writes them: `async with run.transaction("book trip") as booking`."""

from __future__ import annotations

import asyncio
from contextvars import Token
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, Self, TypeVar

from beforehand.agent.call import interruption_of, learn_from, learn_from_commit, outcome_from
from beforehand.agent.tool import Tool
from beforehand.engine.active_run.scopes import SCOPE, Scope
from beforehand.engine.steps import DeliveredOperation, ToolCall, part_names, write
from beforehand.engine.transactions import boundary_of, enter, leave
from beforehand.errors import AmbiguousStep, ReplayDiverged, TransactionAborted, UsageError
from beforehand.model.outcome import Outcome
from beforehand.model.records.transaction import Pivot

P = ParamSpec("P")
R = TypeVar("R")


class Held(Generic[R]):
    """The promise of an effect that is sent when its transaction commits."""

    def __init__(
        self, tool: Tool[Any, R], arguments: dict[str, Any], delivered: DeliveredOperation, scope: Scope
    ) -> None:
        self._tool = tool
        self._arguments = arguments
        self._delivered = delivered
        self._active = scope.active

    def __repr__(self) -> str:
        """The promise as text, naming its operation."""
        return f"<held {self.operation}>"

    @property
    def operation(self) -> str:
        """The operation's full name."""
        return f"{self._active.run}/{self._delivered.step}"

    @property
    def outcome(self) -> Outcome[R]:
        """The outcome of the effect. Raises `UsageError` before the outermost transaction has committed."""
        delivered, active = self._delivered, self._active
        if delivered.kind == "promise":
            transaction = delivered.operation.intent.hold
            if transaction not in active.replay.left:
                raise UsageError(
                    f"{self.operation} is held until {transaction} commits, and has no result before",
                    next_step="read .result after the `async with` of the outermost transaction",
                )
            step = delivered.step
            delivered = DeliveredOperation(active.history.operations[step], step, parts=part_names(active, step))
        return outcome_from(self._tool, self._arguments, delivered, active.run, active.process.identity.namespace)

    @property
    def result(self) -> R:
        """The result of the effect. Raises `UsageError` before the commit, `OperationFailed` if it failed."""
        return self.outcome.result

    def __await__(self) -> NoReturn:
        """Raise `UsageError`: awaiting a promise inside its own transaction would wait for itself."""
        raise UsageError(
            f"{self.operation} is held until its transaction commits, and cannot be awaited",
            next_step="read .result after the `async with` of the outermost transaction",
        )


async def on_commit(scope: Scope, tool: Tool[Any, R], arguments: dict[str, Any]) -> Held[R]:
    """Hold an effect until the outermost transaction around `scope` commits; outside a transaction it is sent now."""
    delivered = await write(scope, ToolCall(tool, arguments, tool.step, hold=True, about=tool.about))
    learn_from(scope, delivered)
    if (interrupted := interruption_of(scope, delivered)) is not None:
        raise interrupted
    return Held(tool, arguments, delivered, scope)


class Transaction:
    """A transaction. Its effects are kept together or compensated together.

    An exception that leaves the body aborts the transaction, and `TransactionAborted` is raised instead. A failure that
    the body handles does not abort it.
    """

    def __init__(self, scope: Scope, name: str, pivot: Pivot) -> None:
        self._outside = scope
        self._title = name
        self._pivot: Pivot = pivot
        self._section: Scope | None = None
        self._token: Token[Scope | None] | None = None

    @property
    def name(self) -> str:
        """The transaction's name in steps, records and commands. Raises `UsageError` before it is entered."""
        if self._section is None:
            raise UsageError("this transaction was not entered", next_step="async with run.transaction(...) as t:")
        return boundary_of(self._section)

    async def on_commit(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Held[R]:
        """Hold an effect until the outermost transaction commits. It is sent after everything else has succeeded."""
        scope = SCOPE.get()
        if scope is None or scope.active is not self._outside.active:
            raise UsageError(f"on_commit of {self.name} was called outside its run", next_step="call it in its body")
        return await on_commit(scope, tool, tool.spec.bind(args, kwargs, strict=True))

    def abort(self, why: str) -> NoReturn:
        """Abort the transaction from inside its body. `TransactionAborted` then reports what was undone."""
        raise TransactionAborted(why, run=self._outside.active.run, reason=why, transaction=self.name)

    async def __aenter__(self) -> Self:
        scope = SCOPE.get() or self._outside
        self._section = await enter(scope, self._title, self._pivot)
        self._token = SCOPE.set(self._section)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._section is not None, self._title
        assert self._token is not None, self._title
        SCOPE.reset(self._token)
        if error is not None and not _calls_off(error):
            return
        try:
            await leave(self._section, error)
        except TransactionAborted as gone:
            self._outside.active.facts.known.undone(gone.transaction, gone.still_standing)
            raise
        learn_from_commit(self._outside, self.name)


def _calls_off(error: BaseException) -> bool:
    """True if an exception aborts the transaction: not if the instance is being torn down, or its code is lost."""
    if isinstance(error, (ReplayDiverged, AmbiguousStep)):
        return False
    return isinstance(error, (Exception, asyncio.CancelledError))
