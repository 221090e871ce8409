"""One call of a tool: the only place where the body of a tool is called."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from beforehand.engine.active_run.scopes import SCOPE
from beforehand.engine.current_operation import AT, CurrentOperation
from beforehand.engine.late_reports import watch_late
from beforehand.engine.operation_driver import CallResult, OperationDriver, decoded, leading_arguments
from beforehand.engine.tool_protocol import begin_call, wake
from beforehand.errors import Ambiguous, NotSent, Rejected
from beforehand.journal.port import Journal
from beforehand.model import records as r
from beforehand.model.operation import key_of
from beforehand.model.secret import RESOLVER, REVEALED

CANCEL_GRACE_S: Final = 1.0


async def invoke(driver: OperationDriver, started: r.AttemptStarted) -> CallResult:
    """Call the tool once, for no longer than the attempt's send-by deadline.

    A cancelled caller does not end the call: the next driver of the operation waits for the same one.
    """
    number = started.number
    process, call = driver.active.process, driver.calls.get(number)
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timeout_ms = left_ms = driver.timeout_ms(started)
    if call is None:
        process.environment.crash.reached("before_send")
        driver.calls[number] = call = start_call(driver, started, timeout_ms, over)
    else:
        call.add_done_callback(lambda _: wake(over))
        left_ms = max(0, timeout_ms - (process.journal.clock().earliest_ms - started.up))
    await process.calls.timeouts.wait(over, left_ms / 1000)
    process.environment.crash.reached("after_send")
    return take_answer(driver, number, call) if call.done() else await give_up(driver, started, call)


def take_answer(driver: OperationDriver, number: int, call: asyncio.Future[Any]) -> CallResult:
    """The result of a call that has ended."""
    del driver.calls[number]
    driver.active.process.calls.ended(call)
    if call.cancelled():
        return _answer(driver, error=Ambiguous("the tool was cancelled from within"))
    error = call.exception()
    return _answer(driver, error=error) if error else _answer(driver, call.result())


def _answer(
    driver: OperationDriver, value: Any = None, error: BaseException | None = None, *, over: bool = True
) -> CallResult:
    current, tool = driver.current, driver.tool
    assert current is not None, driver.step
    assert tool is not None, driver.step
    key_read = current.key_read or tool.contract.key is None
    return CallResult(value, error, over, key_read, current.sends, current.cost, current.reported)


def start_call(
    driver: OperationDriver, started: r.AttemptStarted, timeout_ms: int, over: asyncio.Future[None]
) -> asyncio.Future[Any]:
    """Start the call in a context of its own, where `current_operation()` is this operation."""
    tool, active, step = driver.tool, driver.active, driver.step
    assert tool is not None, step
    process, arguments, intent = active.process, decoded(driver), driver.operation.intent
    run, namespace = active.run, process.identity.namespace
    # Neither function holds the driver, which holds `current`: a circle would keep each step for the garbage collector.
    current = CurrentOperation(
        run, step, tool.name, started.number,
        left_ms=partial(_left_ms, process.journal, started.up + timeout_ms),
        key=partial(key_of, namespace, run, step, intent),
    )  # fmt: skip
    current.writes = tool.contract.effect == "write"
    if tool.contract.observes:
        current.observed = msgspec.json.decode(driver.found.observed)
    driver.current = current
    context = contextvars.copy_context()
    context.run(_enter, current, process.resolver, active.masks.reveal)
    if process.tracing is not None:
        context.run(process.tracing.calling, current)
    first = leading_arguments(driver) if intent.serves else ()
    call = begin_call(tool.body, arguments, first, process.environment, context, over)
    process.calls.open.add(call)
    return call


def _left_ms(journal: Journal, until: int) -> int:
    return until - journal.clock().earliest_ms


def _enter(current: CurrentOperation, resolve: Callable[[str], str] | None, revealed: Callable[[str], None]) -> None:
    """Set the context in which a tool runs."""
    AT.set(current)
    RESOLVER.set(resolve)
    if REVEALED.get() != revealed:  # agent code, which mostly makes the call, has it already
        REVEALED.set(revealed)
    if SCOPE.get() is not None:
        SCOPE.set(None)  # a tool is not a branch of the run: tasks that it starts are not numbered


async def give_up(driver: OperationDriver, started: r.AttemptStarted, call: asyncio.Future[Any]) -> CallResult:
    """Give up a call whose time is over. A coroutine is cancelled and may still answer briefly; a thread runs on."""
    seconds = f"{driver.timeout_ms(started) / 1000:g} s"
    tool = driver.tool
    assert tool is not None, driver.step
    if tool.body.is_async:
        call.cancel()
        await asyncio.wait({call}, timeout=CANCEL_GRACE_S)
    if call.done():
        driver.calls.pop(started.number, None)
        driver.active.process.calls.ended(call)
        error = None if call.cancelled() else call.exception()
        if not call.cancelled() and error is None:
            return _answer(driver, call.result())
        own_word = error if isinstance(error, (NotSent, Rejected)) else None
        return _answer(driver, error=own_word or TimeoutError(f"no answer within {seconds}"))
    watch_late(driver, started.number)
    return _answer(driver, error=TimeoutError(f"no answer within {seconds}; the call still runs"), over=False)
