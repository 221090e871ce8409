"""`run.effect`: an effect that is written where it happens, without a tool of its own.

It is an operation like any other one: its intent is on record before the block, its outcome after it. A block of `with`
cannot be skipped, so the attempts are a loop: it is entered not at all if the outcome is on record, once as a rule, and
again if the contract allows it.

The operation runs in a branch of its own (`InlineEffect._operation`). Its body, which the engine calls, hands over to
the block and waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from beforehand.agent.call import outcome_of
from beforehand.agent.hosted import late_tool, schema_of
from beforehand.agent.tool import Tool
from beforehand.engine.active_run.scopes import SCOPE, branch_task
from beforehand.engine.current_operation import AT, CurrentOperation, current_operation
from beforehand.errors import Ambiguous, ContractError, NotSent, OutsideRun, UsageError
from beforehand.model.outcome import Outcome
from beforehand.model.secret import RESOLVER, REVEALED

if TYPE_CHECKING:
    from datetime import timedelta

_OF_CALLS: Final[tuple[ContextVar[Any], ...]] = (AT, RESOLVER, REVEALED)
"""What the code of an operation has in its context, in a tool and in a block alike."""
_FORM: Final = "async for attempt in effect: async with attempt: attempt.result = ..."


def inline_tool(
    name: str,
    arguments: Mapping[str, Any],
    verify: Callable[..., Any] | None,
    settle_window: timedelta | None,
    clauses: Mapping[str, Any],
) -> Tool[..., Any]:
    """The contract of an inline effect, as a tool whose body comes with the code of the run."""
    if "effect" in clauses:
        raise ContractError(
            f"run.effect({name!r}) does not take effect=: it is for writes",
            next_step='declare a read as a tool: @tool(effect="read")',
        )
    tool = late_tool(name, schema_of(arguments), clauses)
    if verify is not None:
        tool.verify(settle_window=settle_window)(verify)
    return tool


class InlineEffect:
    """One effect of a run, and the attempts at it: `async for attempt in effect`.

    The loop ends when the outcome is recorded. It raises what a tool would raise: `Rejected` or another
    `OperationFailed` if nothing happened.
    """

    def __init__(self, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> None:
        self._tool = tool
        self._arguments = dict(arguments)
        self._hold = True
        self._operation: asyncio.Task[Outcome[Any]] | None = None
        self._offered: asyncio.Future[InlineAttempt] | None = None
        self._attempt: InlineAttempt | None = None
        self._outcome: Outcome[Any] | None = None

    def options(
        self, *, step: str | None = None, compensate: Tool[..., Any] | None = None, hold: bool = True
    ) -> InlineEffect:
        """Give this effect settings of this run, as `Tool.options` does.

        `step` names its step explicitly. Inside a transaction `compensate` undoes it, or `hold=False` lets it stay.
        """
        self._tool, self._hold = self._tool.options(step=step, compensate=compensate), hold
        return self

    @property
    def outcome(self) -> Outcome[Any]:
        """The recorded outcome. Raises `UsageError` before it is recorded."""
        if self._outcome is None:
            raise UsageError(
                f"the effect {self._tool.name} has no outcome yet",
                known="an outcome is recorded when the loop over its attempts has ended",
                next_step=f"{_FORM}; then read effect.result",
            )
        return self._outcome

    @property
    def result(self) -> Any:
        """The recorded result, as plain JSON: the same in every replay. Raises `UsageError` before it is recorded."""
        return self.outcome.value

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InlineAttempt:
        if self._outcome is not None:
            raise StopAsyncIteration
        self._check_block()
        if self._operation is None:
            self._offered = asyncio.get_running_loop().create_future()
            self._operation = self._begin()
        attempt = await self._next_attempt(self._operation)
        if attempt is not None:
            return attempt
        outcome = self._operation.result()
        if outcome.status != "succeeded" or outcome.code:
            raise outcome.error()
        self._outcome = outcome
        raise StopAsyncIteration

    async def _next_attempt(self, operation: asyncio.Task[Outcome[Any]]) -> InlineAttempt | None:
        """The attempt that the engine makes next; None if the operation has ended."""
        while (offered := self._offered) is not None:
            try:
                either: set[asyncio.Future[Any]] = {offered, operation}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self.detach()
                raise
            if not offered.done():
                break
            if self._offered is offered:  # before the block: the next attempt may come before the loop asks for it
                self._offered = asyncio.get_running_loop().create_future()
            self._attempt = offered.result()
            if not self._attempt.over:
                return self._attempt
        return None

    async def __aenter__(self) -> NoReturn:
        raise UsageError(
            f"run.effect({self._tool.name!r}) is not a block: Python cannot skip one whose effect is on record",
            known="nothing was sent",
            next_step=f"effect = run.effect({self._tool.name!r}, ...); {_FORM}",
        )

    async def __aexit__(self, *_: object) -> None:
        """Never reached: `__aenter__` raises."""

    def _check_block(self) -> None:
        """Refuse to go on after an attempt whose block was not entered: its code ran without a record of its end."""
        if self._attempt is not None and not (self._attempt.entered and self._attempt.over):
            self._attempt.end(None, Ambiguous("the loop went on without a block around the effect"))
            raise UsageError(
                f"the effect {self._tool.name} was attempted without its block, so its end was not recorded",
                known="it is recorded as unknown, unless it is verified",
                next_step=_FORM,
            )

    def _begin(self) -> asyncio.Task[Outcome[Any]]:
        """Start the operation in a branch of its own: this one has to run the block meanwhile."""
        scope = SCOPE.get()
        if scope is None:
            raise OutsideRun(
                f"the effect {self._tool.name} was begun outside a run, so it could not be recorded",
                known="nothing was sent",
                next_step="begin it in an @agent function that Beforehand runs; inside a tool or another effect, "
                "its code belongs to that operation",
            )
        tool, step = self._tool.with_body(self._body, lambda: self._offered is None), self._tool.step
        performed = outcome_of(tool, self._arguments, step, at_once=not self._hold)
        return branch_task(scope.beside(), performed)

    async def _body(self, **_: Any) -> Any:
        """The body that the engine calls for each attempt: it hands over to the block, and ends with it."""
        if self._offered is None:
            raise NotSent("the code that makes this effect was cancelled, so its block did not begin")
        attempt = InlineAttempt(self, current_operation(), [(var, var.get(None)) for var in _OF_CALLS])
        if self._offered.done():  # the attempt before it was over before the loop took it
            self._offered = asyncio.get_running_loop().create_future()
        self._offered.set_result(attempt)
        try:
            return await attempt.ended()
        except asyncio.CancelledError:
            if attempt.cut():
                return await attempt.ended()  # briefly: a block that ends in time says what became of the effect
            if attempt is self._attempt:  # the loop has it: code that forgot the block may be making the effect
                raise Ambiguous("its time limit passed before its block was entered") from None
            raise NotSent("its time limit passed before the loop took the attempt") from None

    async def detach(self) -> None:
        """Leave the operation, because the code that makes it was cancelled; the record says so before that goes on."""
        offered, self._offered = self._offered, None
        if offered is not None and offered.done():
            offered.result().end(None, NotSent("the code that makes this effect was cancelled before its block"))
        if self._operation is not None and not self._operation.done():
            self._operation.cancel()
            await asyncio.gather(self._operation, return_exceptions=True)


class InlineAttempt:
    """One attempt at an inline effect: `async with attempt: attempt.result = await client.post(...)`.

    In the block `current_operation()` is this operation, and tools and steps of the run cannot be called. An exception
    that ends the block is judged as that of a tool is, and recorded; then the loop goes on or raises, or the run is
    suspended.
    """

    def __init__(
        self, effect: InlineEffect, operation: CurrentOperation, context: list[tuple[ContextVar[Any], Any]]
    ) -> None:
        self._effect = effect
        self._operation = operation
        self._context = context
        self._end: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[Any] | None = None
        self._before: list[tuple[ContextVar[Any], Token[Any]]] = []
        self._cut = False
        self.result: Any = None
        """The result of the effect, plain JSON. Set it in the block."""

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at this effect, and for no other one."""
        return self._operation.key

    @property
    def number(self) -> int:
        """The number of this attempt, from 1, over all processes."""
        return self._operation.attempt

    @property
    def entered(self) -> bool:
        """True once the block has begun."""
        return self._task is not None

    @property
    def over(self) -> bool:
        """True once the block has ended."""
        return self._end.done()

    async def __aenter__(self) -> Self:
        if self._task is not None or self._end.done():
            raise UsageError(
                f"{self._operation.id}, attempt {self.number}: this attempt is over, or was begun before",
                known="nothing was sent for the second block",
                next_step=_FORM,
            )
        self._task = asyncio.current_task()
        self._before = [(var, var.set(value)) for var, value in (*self._context, (SCOPE, None))]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for var, token in reversed(self._before):
            var.reset(token)
        task = self._task
        assert task is not None, "a block that was entered has a task"
        if self._cut:
            # The time limit of the attempt cancelled this task; a cancellation from elsewhere is still to be raised.
            ours = task.uncancel() == 0
            own = (
                error if error is None or isinstance(error, Exception) else Ambiguous("its time limit ended the block")
            )
            self.end(self.result, own)
            if not ours:
                await self._effect.detach()
            return ours and (error is own or isinstance(error, asyncio.CancelledError))
        if error is None or isinstance(error, Exception):
            self.end(self.result, error)
            return True
        self.end(None, Ambiguous(f"its block was ended by {type(error).__name__}"))
        if isinstance(error, asyncio.CancelledError):
            await self._effect.detach()
        return False

    def end(self, result: Any, error: BaseException | None) -> None:
        """End the attempt: the engine records what the block did."""
        if not self._end.done():
            self._end.set_result((result, error))

    async def ended(self) -> Any:
        """Wait for the end of the block. Returns its result, or raises what it raised."""
        result, error = await asyncio.shield(self._end)
        if error is not None:
            raise error
        return result

    def cut(self) -> bool:
        """Cancel the block at its time limit; False if it was not entered."""
        if self._task is None:
            self.end(None, None)
            return False
        if not self._end.done():
            self._cut = True
            self._task.cancel()
        return True
