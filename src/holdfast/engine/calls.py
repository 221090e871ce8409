"""One call of a tool: the only place where the product touches the outside world."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any, Final

import msgspec

from holdfast.engine.current import AT, CurrentOperation
from holdfast.engine.flight import Flight
from holdfast.engine.scopes import SCOPE
from holdfast.engine.tooling import begin
from holdfast.errors import Ambiguous
from holdfast.model import records as r
from holdfast.model.secret import RESOLVER

LAST_WORD_S: Final = 1.0


class Answer(msgspec.Struct, frozen=True):
    """What came of a call. `over` is false where the call still runs although nobody waits for it."""

    value: Any = None
    error: BaseException | None = None
    over: bool = True
    key_read: bool = True
    sends: int = 0  # how often the tool said that it was about to send


async def call_tool(flight: Flight, started: r.AttemptStarted) -> Answer:
    """Call the tool once, for no longer than the attempt's send-by deadline."""
    tool, instance = flight.tool, flight.instance
    assert tool is not None, flight.step
    journal = instance.engine.journal
    current = CurrentOperation(
        instance.run, flight.step, tool.name, flight.key, started.number,
        lambda: started.send_by - (journal.now().ms - started.up),
    )  # fmt: skip
    arguments = flight.decoded()
    if tool.contract.observes:
        current.observed = msgspec.json.decode(flight.observed)
    context = contextvars.copy_context()
    context.run(AT.set, current)
    context.run(SCOPE.set, None)  # a tool is no branch of the run: what it starts is not numbered
    context.run(RESOLVER.set, instance.engine.resolver)
    crash = instance.engine.seams.crash
    crash.reached("before_send")
    call = context.run(begin, tool.body, arguments, (), instance.engine.seams)
    flight.calls[started.number] = call
    try:
        await asyncio.wait({call}, timeout=started.send_by / 1000)
        if not call.done():
            return await _give_up(flight, started, call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    finally:
        crash.reached("after_send")
    flight.calls.pop(started.number, None)
    read = current.key_read or tool.contract.key is None
    if call.cancelled():
        return Answer(error=Ambiguous("the tool was cancelled from within"), key_read=read)
    error = call.exception()
    return Answer(None if error else call.result(), error, key_read=read, sends=current.sends)


async def _give_up(flight: Flight, started: r.AttemptStarted, call: asyncio.Future[Any]) -> Answer:
    """Time is over. A coroutine is cancelled and given a moment to say a last word; a thread cannot be."""
    seconds = f"{started.send_by / 1000:g} s"
    tool = flight.tool
    assert tool is not None, flight.step
    if tool.body.is_async:
        call.cancel()
        await asyncio.wait({call}, timeout=LAST_WORD_S)
    if call.done():
        flight.calls.pop(started.number, None)
        if not call.cancelled() and call.exception() is None:
            return Answer(call.result())
        return Answer(error=TimeoutError(f"no answer within {seconds}"))
    flight.instance.engine.watch_late(flight, started.number, call)
    return Answer(error=TimeoutError(f"no answer within {seconds}; the call still runs"), over=False)
