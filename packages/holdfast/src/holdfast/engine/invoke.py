"""One call of a tool: the only place where the product touches the outside world."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine.current_operation import AT, CallReport, CurrentOperation
from holdfast.engine.operation_driver import OperationDriver, key_of
from holdfast.engine.scopes import SCOPE
from holdfast.engine.tool_protocol import begin_call, wake
from holdfast.errors import Ambiguous, NotSent, Rejected
from holdfast.model import records as r
from holdfast.model.secret import RESOLVER, REVEALED

CANCEL_GRACE_S: Final = 1.0


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """What came of a call. `over` is false where the call still runs although nobody waits for it."""

    value: Any = None
    error: BaseException | None = None
    over: bool = True
    key_read: bool = True
    sends: int = 0  # how often the tool said that it was about to send
    cost: float = 0
    said: CallReport | None = None


async def invoke(flight: OperationDriver, started: r.AttemptStarted) -> CallResult:
    """Call the tool once, for no longer than the attempt's send-by deadline.

    A cancelled caller does not end the call: whoever goes on with the flight waits for the same one.
    """
    number = started.number
    engine, call = flight.instance.engine, flight.calls.get(number)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    limit_ms = left_ms = flight.limit_ms(started)
    if call is None:
        engine.environment.crash.reached("before_send")
        flight.calls[number] = call = _start_call(flight, started, limit_ms, over)
    else:
        call.add_done_callback(lambda _: wake(over))
        left_ms = max(0, limit_ms - (engine.journal.now().ms - started.up))
    await engine.limits.wait(over, left_ms / 1000)
    engine.environment.crash.reached("after_send")
    if not call.done():
        return await _give_up(flight, started, call)
    del flight.calls[number]
    engine.has_ended(call)
    if call.cancelled():
        return _answer(flight, error=Ambiguous("the tool was cancelled from within"))
    error = call.exception()
    return _answer(flight, error=error) if error else _answer(flight, call.result())


def _answer(
    flight: OperationDriver, value: Any = None, error: BaseException | None = None, *, over: bool = True
) -> CallResult:
    current, tool = flight.current, flight.tool
    assert current is not None, flight.step
    assert tool is not None, flight.step
    key_read = current.key_read or tool.contract.key is None
    return CallResult(value, error, over, key_read, current.sends, current.cost, current.said)


def _start_call(
    flight: OperationDriver, started: r.AttemptStarted, limit_ms: int, over: asyncio.Future[None]
) -> asyncio.Future[Any]:
    """Start the call in a context of its own, where `current_operation()` is this operation."""
    tool, instance = flight.tool, flight.instance
    assert tool is not None, flight.step
    engine, arguments, intent = instance.engine, flight.decoded(), flight.operation.intent
    current = CurrentOperation(
        instance.run, flight.step, tool.name, started.number,
        left_ms=lambda: limit_ms - (engine.journal.now().ms - started.up),
        key=lambda: key_of(engine.identity.namespace, instance.run, flight.step, intent),
    )  # fmt: skip
    if tool.contract.observes:
        current.observed = msgspec.json.decode(flight.observed)
    flight.current = current
    context = contextvars.copy_context()
    context.run(_enter, current, engine.resolver, instance.masks.reveal)
    first = flight.given() if intent.serves else ()
    call = begin_call(tool.body, arguments, first, engine.environment, context, over)
    engine.begun.add(call)
    return call


def _enter(current: CurrentOperation, resolve: Callable[[str], str] | None, revealed: Callable[[str], None]) -> None:
    """What is true where a tool runs."""
    AT.set(current)
    RESOLVER.set(resolve)
    REVEALED.set(revealed)
    if SCOPE.get() is not None:
        SCOPE.set(None)  # a tool is no branch of the run: what it starts is not numbered


async def _give_up(flight: OperationDriver, started: r.AttemptStarted, call: asyncio.Future[Any]) -> CallResult:
    """Time is over. A coroutine is cancelled and given a moment to say a last word; a thread cannot be."""
    seconds = f"{flight.limit_ms(started) / 1000:g} s"
    tool = flight.tool
    assert tool is not None, flight.step
    if tool.body.is_async:
        call.cancel()
        await asyncio.wait({call}, timeout=CANCEL_GRACE_S)
    if call.done():
        flight.calls.pop(started.number, None)
        flight.instance.engine.has_ended(call)
        error = None if call.cancelled() else call.exception()
        if not call.cancelled() and error is None:
            return _answer(flight, call.result())
        own_word = error if isinstance(error, (NotSent, Rejected)) else None
        return _answer(flight, error=own_word or TimeoutError(f"no answer within {seconds}"))
    flight.instance.engine.watch_late(flight, started.number, call)
    return _answer(flight, error=TimeoutError(f"no answer within {seconds}; the call still runs"), over=False)


# Time limits of what is waited for, on one timer of the event loop.
#
# Nearly every limit is lifted long before it is over, so a timer of its own for each would be made and
# cancelled for nothing. The one timer stands at the earliest limit that was known when it was set.


class CallTimeouts:
    """The limits of one engine, by what each of them ends."""

    def __init__(self) -> None:
        self._due: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, over: asyncio.Future[None], seconds: float) -> None:
        """Wait for `over`; after `seconds` it is done by us."""
        loop = over.get_loop()
        due = self._due[over] = loop.time() + seconds
        if self._timer is None or due < self._timer.when():
            self._set_timer(loop, due)
        try:
            await over
        finally:
            del self._due[over]

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        """End what is over by now, and set the timer for what is left."""
        self._timer = None
        until = max(until, loop.time())
        for over, due in self._due.items():
            if due <= until and not over.done():
                over.set_result(None)
        left = [due for due in self._due.values() if due > until]
        if left:
            self._set_timer(loop, min(left))
