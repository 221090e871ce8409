"""House-keeping: the loops that a process runs for as long as its app is open, and what is wrong with them.

A round that fails is logged and the next one begins all the same, whatever it raised: a loop that ended in silence
would leave a process that takes no commands. What fails is published as a losable note of the process, which
`holdfast ps`, `holdfast doctor` and the commands to its runs show.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import HoldfastError, LeaseLost

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.journal.port import Journal

LOG: Final = logging.getLogger("holdfast")
HEALTH: Final = "health/"
"""How the name of the note begins in which a process says what is wrong with its house-keeping."""
AGAIN_MS: Final = 60_000
"""How often a failure that goes on is logged."""


class Trouble(msgspec.Struct, frozen=True):
    """A house-keeping task that fails: what it does, why it fails, and since which wall clock."""

    task: str
    error: str
    since_ms: int


class Housekeeping:
    """The house-keeping of one process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._troubles: dict[str, Trouble] = {}
        self._logged_ms: dict[str, int] = {}
        self._published: bytes | None = None

    async def round(self, task: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do one round of a task. Whatever it raises is logged and published, and the next round goes on."""
        try:
            await work()
        except LeaseLost:
            return  # that run ends by itself
        except Exception as error:  # noqa: BLE001 - a bug of one round must not end every later one
            await self._failed(task, error)
        else:
            if self._troubles:
                await self.forget({task})

    async def forget(self, tasks: Collection[str]) -> None:
        """These do not fail any more."""
        if tasks & self._troubles.keys():
            for task in tasks:
                self._troubles.pop(task, None)
                self._logged_ms.pop(task, None)
            await self._publish()

    def failing(self) -> list[str]:
        """The tasks that failed in their last round."""
        return list(self._troubles)

    async def _failed(self, task: str, error: Exception) -> None:
        now, text = self._engine.seams.clock.wall_ms(), f"{type(error).__name__}: {error}"[:500]
        before = self._troubles.get(task)
        self._troubles[task] = Trouble(task, text, now if before is None else before.since_ms)
        if before is None or before.error != text or now - self._logged_ms[task] >= AGAIN_MS:
            self._logged_ms[task] = now
            known = isinstance(error, HoldfastError)
            LOG.log(
                logging.WARNING if known else logging.ERROR,
                "%s: %s. It is tried again.", task, text.rstrip("."), exc_info=None if known else error,
            )  # fmt: skip
            await self._publish()

    async def _publish(self) -> None:
        body = msgspec.json.encode(list(self._troubles.values()))
        with contextlib.suppress(HoldfastError):  # a journal that takes nothing takes no note either; the log has it
            if await self._engine.journal.put_hint(HEALTH + self._engine.worker.id, body, self._published):
                self._published = body


async def troubles_of(journal: Journal, worker: str) -> list[Trouble]:
    """What is wrong with the house-keeping of a process, as far as it could say so."""
    note = await journal.hint(HEALTH + worker)
    return [] if note is None else troubles_in(note)


def troubles_in(note: bytes) -> list[Trouble]:
    """What such a note says; nothing where it cannot be read."""
    try:
        return msgspec.json.decode(note, type=list[Trouble])
    except (msgspec.MsgspecError, ValueError):
        return []
