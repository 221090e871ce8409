"""Another program in the same journal: it begins runs, and is never started again, so that they stay due for ever."""

from __future__ import annotations

import contextlib
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from beforehand.agent.agent import agent
from beforehand.agent.run import Run
from beforehand.app import Beforehand
from beforehand.engine.environment import Environment, NoCrash
from beforehand.errors import JournalUnavailable, RunSuspended
from beforehand.journal.port import Worker
from beforehand.testing.clock import InlineThreads, SeededRng

if TYPE_CHECKING:
    from simulator.world import World

NAP: Final = timedelta(minutes=1)


@agent(run_id="0-stranger-{number}", name="stranger")
async def stranger(run: Run, number: int) -> str:
    """Sleep for longer than its process lives."""
    await run.sleep(NAP)
    return f"{number} slept"


class Strangers:
    """The process of the other program. Nothing strikes it, and it leaves once its runs sleep."""

    def __init__(self, world: World, count: int) -> None:
        self._world = world
        self._count = count
        self._actor = world.loop.spawn("stranger", self._main)
        self._disk = world.disk_of(self._actor, contained=False)

    async def _main(self) -> None:
        from simulator.processes.worker import WallClock  # noqa: PLC0415 - the world is made with what stands here

        world = self._world
        chance = SeededRng(random.Random(f"stranger/{world.plan.seed}").getrandbits(64))  # noqa: S311 - a seed
        environment = Environment(WallClock(world), chance, InlineThreads(), NoCrash())
        app = Beforehand(
            self._disk, agents=[stranger], environment=environment, settings=world.settings, recover=False,
            worker=lambda token: Worker(token, machine="m", boot=world.boot, pid=1, pid_namespace="stranger"),
        )  # fmt: skip
        with contextlib.suppress(JournalUnavailable):
            async with app:
                await self._begin(app)
        self._actor.die()
        self._disk.die()
        for worker in self._disk.workers:
            world.journal.kill(worker)

    async def _begin(self, app: Beforehand) -> None:
        for number in range(self._count):
            with contextlib.suppress(RunSuspended):
                await app.run(stranger, number)
