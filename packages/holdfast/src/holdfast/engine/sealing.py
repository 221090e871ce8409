"""Steps of agent code on an instance that takes none any more, and code that goes on all the same.

`Sealed` ends code that unwinds. Code that catches it and calls the next step, again and again, would keep the event
loop for itself: so a refused step gives the loop back first, and after some rounds it does not return.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

from holdfast.engine.exceptions.agent_error import is_of_agents
from holdfast.errors import JournalError, RecordRefused

if TYPE_CHECKING:
    from holdfast.engine.active_run.run import ActiveRun
    from holdfast.engine.scopes import Scope


LOG: Final = logging.getLogger("holdfast")
UNKNOWN_PLACE: Final = "an unknown line"
ROUNDS: Final = 1000
"""How many steps of one branch are refused before it is abandoned."""


async def refuse(scope: Scope) -> NoReturn:
    """Raise `Sealed`. A branch that has caught it too often waits here for ever."""
    instance, host = scope.instance, scope.host
    host.refused += 1
    if host.refused > ROUNDS and (task := asyncio.current_task()) is not None:
        abandon(instance, task, _running_place())
        await _for_ever()
    with contextlib.suppress(asyncio.CancelledError):  # what is raised here ends the branch as well
        await instance.engine.environment.clock.sleep(0)
    instance.check()
    raise AssertionError("a step is refused by an instance that is sealed")


def abandon(instance: ActiveRun, task: asyncio.Task[Any], place: str = "") -> None:
    """Leave a task of agent code that does not end where it is: neither this process nor another run waits for it."""
    if task not in asyncio.all_tasks():
        return  # it was left before
    if not instance.abandoned:  # what waits for it has to be left as well, and is not at fault
        _tell(instance, place or waiting_place(task))
    instance.abandoned = True
    # The loop's last act is to cancel every task and to wait for it: this one would not end.
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 - documented for those who extend asyncio
    # Never collected: its code would be run once more, to be closed, and would catch that as well.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
    task.add_done_callback(lambda done: ctypes.pythonapi.Py_DecRef(ctypes.py_object(done)))


def _tell(instance: ActiveRun, place: str) -> None:
    LOG.warning(
        "run %s: its code does not end, at %s: it catches what is raised to end it. It is left there, and other "
        "runs go on. Catch Exception there, and no other BaseException",
        instance.run, place,
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
    """The innermost line of agent code at which a task waits."""
    at: Any = task.get_coro()
    place = UNKNOWN_PLACE
    while (frame := getattr(at, "cr_frame", None)) is not None:
        if is_of_agents(frame.f_code.co_filename):
            place = _place(frame.f_code, frame.f_lineno)
        at = at.cr_await
    return place


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} in {code.co_name}"


# Agent code never learns that the journal failed: it could catch the error and go on unrecorded.


P = ParamSpec("P")
R = TypeVar("R")


def sealing(
    step: Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]]:
    """A step of agent code that ends its instance, and raises `Sealed`, where the journal fails it."""

    @functools.wraps(step)
    async def guarded(scope: Scope, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await step(scope, *args, **kwargs)
        except RecordRefused:
            raise  # this one record does not fit; the journal is well
        except JournalError as error:
            raise scope.instance.fail(error) from error

    return guarded
