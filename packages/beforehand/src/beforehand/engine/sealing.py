"""Refuses steps of agent code on a sealed run, and abandons code that goes on all the same.

`Sealed` ends code that unwinds. Code that catches it and calls the next step, again and again, would keep the event
loop for itself: so a refused step gives the loop back first, and after some rounds it does not return.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

from beforehand.engine.exceptions.call_end import is_of_agents
from beforehand.engine.operation_driver import planned, recorded
from beforehand.engine.suspension import Pause
from beforehand.errors import JournalError, RecordRefused

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.active_run.scopes import Limit, Scope
    from beforehand.engine.operation_driver import OperationDriver


LOG: Final = logging.getLogger("beforehand")
UNKNOWN_PLACE: Final = "an unknown line"
ROUNDS: Final = 1000
"""How many steps of one branch are refused before it is abandoned."""


async def refuse(scope: Scope) -> NoReturn:
    """Raise `Sealed`. A branch that has caught it too often waits here for ever."""
    active, host = scope.active, scope.host
    host.refused += 1
    if host.refused > ROUNDS and (task := asyncio.current_task()) is not None:
        abandon(active, task, _running_place())
        await _for_ever()
    with contextlib.suppress(asyncio.CancelledError):  # the error that is raised here ends the branch as well
        await active.process.environment.clock.sleep(0)
    active.check()
    raise AssertionError("a step is refused by an instance that is sealed")


def abandon(active: ActiveRun, task: asyncio.Task[Any], place: str = "") -> None:
    """Abandon a task of agent code that does not end: neither this process nor another run waits for it."""
    if task not in asyncio.all_tasks():
        return  # it was abandoned before
    import ctypes  # noqa: PLC0415 - hardly any process needs it

    if not active.abandoned:  # tasks that wait for it have to be abandoned as well, and are not at fault
        _tell(active, place or waiting_place(task))
    active.abandoned = True
    # A closing loop cancels every task and waits for it: this one would not end.
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - documented for those who extend asyncio
    # Keep it from being collected: that would run its code once more, to close it, and the code would catch that too.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
    task.add_done_callback(lambda done: ctypes.pythonapi.Py_DecRef(ctypes.py_object(done)))


def _tell(active: ActiveRun, place: str) -> None:
    LOG.warning(
        "run %s: its code does not end at %s, because it catches the exception that ends it. It is "
        "abandoned there, and other runs continue. Catch Exception there, and no other BaseException",
        active.run, place,
    )  # fmt: skip


async def _for_ever() -> NoReturn:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()


def _running_place() -> str:
    """The line of agent code that called the step which is running."""
    frame = inspect.currentframe()
    while frame is not None and not is_of_agents(frame.f_code.co_filename):
        frame = frame.f_back
    return UNKNOWN_PLACE if frame is None else _place(frame.f_code, frame.f_lineno)


def waiting_place(task: asyncio.Task[Any]) -> str:
    """The innermost line of agent code at which a task waits, or else of the library that made the task."""
    at: Any = task.get_coro()
    place, inner = "", UNKNOWN_PLACE
    while (frame := getattr(at, "cr_frame", None)) is not None:
        inner = _place(frame.f_code, frame.f_lineno)
        place = inner if is_of_agents(frame.f_code.co_filename) else place
        at = at.cr_await
    return place or inner


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} in {code.co_name}"


P = ParamSpec("P")
R = TypeVar("R")


def sealing(
    step: Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]]:
    """A step of agent code that ends its instance, and raises `Sealed`, where the journal fails it.

    Its branch is at work, also while it waits for the journal, and rests only in a wait of `Waiters`: for a person, a
    clock, or its turn. A branch that seemed to rest while its answer became durable would stop the run as diverged,
    because what another branch received after that answer waits for it.
    """

    @functools.wraps(step)
    async def guarded(scope: Scope, /, *args: P.args, **kwargs: P.kwargs) -> R:
        host = scope.host
        host.working += 1
        try:
            if scope.active.closed:
                await refuse(scope)
            return await step(scope, *args, **kwargs)
        except RecordRefused:
            raise  # this one record does not fit; the journal is well
        except JournalError as error:
            raise scope.active.fail(error) from error
        finally:
            host.working -= 1
            # Its code may go on to wait for branches that rest already. One that is collected may have no loop.
            if host.children and not isinstance(sys.exception(), GeneratorExit):
                scope.active.waiters.consider_rest()

    return guarded


# --- steps whose caller was cancelled ------------------------------------------------------------------------------
# On replay the caller is cancelled at the same point, and the step is not made again. A call that was in flight has a
# record of that, and so has an answer that was recorded and not taken. A step that only waited, or read, has none:
# there the time limit around it is on record as over, and the step is not.


async def take_answer(scope: Scope, step: str) -> None:
    """Take the recorded answer of a step in its turn. If its caller was cancelled before it had it, it is again."""
    delivery = await scope.active.replay.take_turn(scope, step)
    if delivery.kind == "left":
        await replay_detachment(scope, step)


async def replay_timeout(scope: Scope, step: str, limit: Limit) -> None:
    """Detach from the step if its branch is in the body of the limit; a branch that the body began may outlive it."""
    if limit in scope.host.limits:
        await replay_detachment(scope, step, limit.name)
    await scope.active.waiters.wait(scope, limit.outlived, Pause("left", step, scope.active.process.wall_ms()))


async def replay_detachment(scope: Scope, step: str, limit: str = "") -> None:
    """Cancel the caller at the recorded point.

    What cancelled it before comes in its turn: a time limit, or the failure of another branch. If nothing comes for a
    while, the caller is cancelled directly. Where the journal is slow, the turn of a `limit` comes later than that.
    """
    active, process = scope.active, scope.active.process
    active.replay.begun.discard(step)
    for turn in dict.fromkeys(("", limit)):
        await active.replay.reach_turn(scope, turn)
        await active.waiters.wait_ms(scope, process.settings.patience_ms, Pause("left", step, process.wall_ms()))
    raise asyncio.CancelledError(f"the caller of {step} was cancelled here before")


async def record_before_detaching(driver: OperationDriver) -> None:
    """Record the detached operation, for replay at the same point. The ledger may still refuse its first record."""
    active = driver.active
    if checks := active.log.checks(driver.step):  # else CallerLeft would be missing, or the operation's first record
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(checks)
    if active.sealed is None and not (recorded(driver) or active.log.checks(driver.step)):
        driver.started = None  # it was not sent yet, or refused
        assert driver.tool is not None, driver.step
        active.log.buffer(*active.log.contract_record(driver.tool), planned(driver))


def detach(scope: Scope, step: str) -> None:
    """Let an operation in flight go on without its cancelled caller."""
    active = scope.active
    if active.sealed is None and step in active.history.operations:
        active.caller_left(step)
        active.replay.forgo(step)
