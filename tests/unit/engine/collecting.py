"""What an app does to the garbage collector of its interpreter, for a process that has no more than the product in it.

`python -m tests.unit.engine.collecting NAME DIRECTORY` runs one function. Inside the process of a suite each collection
would visit everything that the suite has loaded.
"""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner

from beforehand import Beforehand
from beforehand.cli import apps
from beforehand.cli.main import main
from beforehand.engine.settings import Settings

TUNED = Settings(gc_threshold=50_000)
PROGRAM = """
from beforehand import Run, agent

@agent(run_id="order-{number}")
async def desk(run: Run, number: int) -> int:
    return number
"""


async def left_alone(place: Path) -> None:
    """An app without the setting."""
    before = gc.get_threshold(), gc.get_freeze_count()
    async with Beforehand(place / "j.db"):
        assert (gc.get_threshold(), gc.get_freeze_count()) == before


async def tuned(place: Path) -> None:
    """An app with it."""
    before = gc.get_threshold()
    async with Beforehand(place / "j.db", settings=TUNED):
        assert gc.get_threshold() == (50_000, *before[1:])
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def several(place: Path) -> None:
    """Two apps with different thresholds."""
    before = gc.get_threshold()
    async with Beforehand(place / "a.db", settings=TUNED):
        async with Beforehand(place / "b.db", settings=Settings(gc_threshold=90_000)):
            assert gc.get_threshold()[0] == 90_000
        assert gc.get_threshold()[0] == 50_000
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def frozen_before(place: Path) -> None:
    """An app in an application that has frozen its own objects."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    async with Beforehand(place / "j.db", settings=TUNED):
        assert gc.get_freeze_count() <= frozen
    assert gc.get_freeze_count() > 0


async def not_opened(place: Path) -> None:
    """An app that cannot be opened: a directory is no journal."""
    before = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(Exception, match=str(place)):
        await Beforehand(place, settings=TUNED).open()
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def commands(place: Path) -> None:
    """A command that may have many live runs, and one of a single run."""
    program, journal = place / "desk.py", place / "desk.db"
    program.write_text(PROGRAM)
    seen: list[int] = []

    class Watched(Beforehand):
        async def __aenter__(self) -> Self:
            opened = await super().__aenter__()
            seen.append(gc.get_threshold()[0])
            return opened

    apps.Beforehand = Watched  # type: ignore[misc]  # in this process alone
    before = gc.get_threshold()[0]
    for command in (["run", f"{program}:desk", "1"], ["worker", f"{program}:desk", "--once"]):
        ended = CliRunner().invoke(main, ["--journal", str(journal), *command])
        assert ended.exit_code == 0, ended.output
    assert seen == [before, apps.MANY_RUNS_GC]
    assert gc.get_threshold()[0] == before


if __name__ == "__main__":
    gc.unfreeze()  # what the process from which this one was forked has frozen
    action, directory = globals()[sys.argv[1]], Path(sys.argv[2])
    if asyncio.iscoroutinefunction(action):
        asyncio.run(action(directory))
    else:
        action(directory)
