"""One call of a tool: the only place where the product touches the outside world."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine.current import AT, CurrentOperation
from holdfast.engine.flight import Flight, key_of
from holdfast.engine.said import Said
from holdfast.engine.scopes import SCOPE
from holdfast.engine.tooling import begin, ring
from holdfast.errors import Ambiguous, NotSent, Rejected
from holdfast.model import records as r
from holdfast.model.secret import RESOLVER, REVEALED

LAST_WORD_S: Final = 1.0


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came of a call. `over` is false where the call still runs although nobody waits for it."""

    value: Any = None
    error: BaseException | None = None
    over: bool = True
    key_read: bool = True
    sends: int = 0  # how often the tool said that it was about to send
    cost: float = 0
    said: Said | None = None


async def call_tool(flight: Flight, started: r.AttemptStarted) -> Answer:
    """Call the tool once, for no longer than the attempt's send-by deadline.

    A cancelled caller does not end the call: whoever goes on with the flight waits for the same one.
    """
    number = started.number
    engine, call = flight.instance.engine, flight.calls.get(number)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    limit_ms = left_ms = flight.limit_ms(started)
    if call is None:
        engine.seams.crash.reached("before_send")
        flight.calls[number] = call = _begin(flight, started, limit_ms, over)
    else:
        call.add_done_callback(lambda _: ring(over))
        left_ms = max(0, limit_ms - (engine.journal.now().ms - started.up))
    await engine.limits.wait(over, left_ms / 1000)
    engine.seams.crash.reached("after_send")
    if not call.done():
        return await _give_up(flight, started, call)
    del flight.calls[number]
    engine.has_ended(call)
    if call.cancelled():
        return _answer(flight, error=Ambiguous("the tool was cancelled from within"))
    error = call.exception()
    return _answer(flight, error=error) if error else _answer(flight, call.result())


def _answer(flight: Flight, value: Any = None, error: BaseException | None = None, *, over: bool = True) -> Answer:
    current, tool = flight.current, flight.tool
    assert current is not None, flight.step
    assert tool is not None, flight.step
    key_read = current.key_read or tool.contract.key is None
    return Answer(value, error, over, key_read, current.sends, current.cost, current.said)


def _begin(flight: Flight, started: r.AttemptStarted, limit_ms: int, over: asyncio.Future[None]) -> asyncio.Future[Any]:
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
    call = begin(tool.body, arguments, first, engine.seams, context, over)
    engine.begun.add(call)
    return call


def _enter(current: CurrentOperation, resolve: Callable[[str], str] | None, revealed: Callable[[str], None]) -> None:
    """What is true where a tool runs."""
    AT.set(current)
    RESOLVER.set(resolve)
    REVEALED.set(revealed)
    if SCOPE.get() is not None:
        SCOPE.set(None)  # a tool is no branch of the run: what it starts is not numbered


async def _give_up(flight: Flight, started: r.AttemptStarted, call: asyncio.Future[Any]) -> Answer:
    """Time is over. A coroutine is cancelled and given a moment to say a last word; a thread cannot be."""
    seconds = f"{flight.limit_ms(started) / 1000:g} s"
    tool = flight.tool
    assert tool is not None, flight.step
    if tool.body.is_async:
        call.cancel()
        await asyncio.wait({call}, timeout=LAST_WORD_S)
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
