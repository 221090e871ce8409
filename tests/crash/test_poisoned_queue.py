"""A run of a queue that kills its workers is set aside, takes no other run with it, and does not block its queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from beforehand import Beforehand
from beforehand.engine.settings import Settings
from beforehand.journal.port import RunRow
from tests import forked
from tests.crash.poison_worker import LIMITS, SLOTS, desk
from tests.crash.queue_worker import done
from tests.crash.stage import until
from tests.crash.test_submitted import ROOT, lines
from tests.draws import daily

PROCESSES = 3
POISON = ("tool-kill", "tool-exit", "code-kill", "code-exit")


async def submit(journal: Path, names: list[str]) -> None:
    async with Beforehand(str(journal), agents=[desk], queues=LIMITS, recover=False) as app:
        for name in names:
            await app.submit(desk, name, queue="mail")


async def rows(journal: Path) -> dict[str, RunRow]:
    async with Beforehand(str(journal), agents=[desk], recover=False) as app:
        return {row.run: row for row in await app.engine.journal.runs(limit=1_000)}


@contextlib.contextmanager
def workers(journal: Path, place: Path) -> Generator[None]:
    command = ["-m", "tests.crash.poison_worker", str(journal), str(place), str(PROCESSES)]
    process = forked.start(command, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()  # its workers end with it
        process.wait()


def test_runs_that_kill_their_workers_are_set_aside_and_every_other_run_of_the_queue_ends(tmp_path: Path):
    journal = tmp_path / "desk.db"
    healthy = [f"{number:02}" for number in range(24)]
    asyncio.run(submit(journal, [*healthy[:6], *POISON, *healthy[6:]]))
    with workers(journal, tmp_path):
        until(lambda: set(done(tmp_path)) >= set(healthy))
        until(lambda: not driven(journal))
        asyncio.run(submit(journal, ["later-1", "later-2", "later-3"]))
        until(lambda: {"later-1", "later-2", "later-3"} <= set(done(tmp_path)))
        until(lambda: not driven(journal))
    found = asyncio.run(rows(journal))
    assert {name for name, count in Counter(done(tmp_path)).items() if count != 1} == set()
    assert {run: row.status for run, row in found.items() if row.status != "completed"} == {
        "job-tool-kill": "suspended", "job-tool-exit": "suspended", "job-code-kill": "stopped",
        "job-code-exit": "stopped",
    }  # fmt: skip
    settings, deaths = Settings(), Counter(lines(tmp_path / "deaths"))
    allowed = max(settings.deaths_allowed, settings.claims_allowed)
    assert set(deaths) == set(POISON)
    assert max(deaths.values()) <= allowed + 1, "each was set aside after the deaths that are allowed"


def driven(journal: Path) -> list[str]:
    """The runs that have a slot, or wait for one."""
    return [run for run, row in asyncio.run(rows(journal)).items() if row.status in {"queued", "running"}]


@pytest.mark.parametrize("how", daily(["kill", "exit"]))
def test_poison_in_every_slot_blocks_the_queue_for_a_few_deaths_only(tmp_path: Path, how: str):
    """As many runs as there are slots kill their workers, and the one healthy run was submitted after them."""
    journal = tmp_path / "desk.db"
    asyncio.run(submit(journal, [*(f"tool-{number}-{how}" for number in range(SLOTS + 1)), "healthy"]))
    with workers(journal, tmp_path):
        until(lambda: "healthy" in done(tmp_path))
        until(lambda: not driven(journal))
    deaths = Counter(lines(tmp_path / "deaths"))
    assert max(deaths.values()) <= Settings().deaths_allowed + 1
