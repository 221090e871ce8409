"""The tasks of a run that drive operations, and finish transactions, from the records."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.active_run.scopes import SCOPE
from holdfast.engine.active_run.waiters import Waiters

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver


class Drivers:
    """The drivers of a run: their tasks by step, the operations that they drive, and the boundaries they close."""

    def __init__(self, waiters: Waiters, break_off: Callable[[BaseException], object]) -> None:
        self.tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self.operations: Final[dict[str, OperationDriver]] = {}
        self.closing: Final[dict[str, None]] = {}  # the exits of transactions that are being closed, in begun order
        self._waiters: Final = waiters
        self._break_off: Final = break_off

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a driver. No caller receives what it raises: an error that it cannot handle ends the run."""

        async def body() -> None:
            try:
                await work()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - nothing else receives it
                self._break_off(error)
            finally:
                self.tasks.pop(key, None)
                self._waiters.settled(key)
                self._waiters.consider_rest()

        context = contextvars.copy_context()
        context.run(SCOPE.set, None)  # a task of the runtime is no branch of agent code, and not cancelled with one
        self.tasks[key] = asyncio.get_running_loop().create_task(body(), context=context)
