"""Three processes share a budget over one file, and one of them is killed: while it reserves, asks or settles.

The model is outside the processes, and counts. Together they never ask it more often than the budget permits, and the
counters are the sums over the records of all runs, whatever is killed when.
"""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from beforehand.inspect.reader import JournalReader
from beforehand.journal.backends import address_of
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.queues.zones import day_of
from tests import forked
from tests.crash.test_budgets import CENT, ROOT, Model
from tests.draws import pick
from tests.unit.engine.lab import charges_in

LIMIT = 9  # as in tests/crash/sharing.py
NAMES = ("ann", "bob", "cat")


def begin(journal: Path, url: str, name: str, limit: str, point: str = "-", count: int = 0) -> subprocess.Popen[str]:
    return forked.start(
        ["-m", "tests.crash.sharing", str(journal), url, point, str(count), name, limit],
        cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )  # fmt: skip


async def sums_and_counters(journal: Path, days: list[str]) -> tuple[list[BudgetUse], list[BudgetUse], int]:
    """What the records of all runs come to, what the journal counted, and how many reservations are open."""
    opened = address_of(journal).reader()
    reader = JournalReader(opened, await opened.open())
    sums: dict[tuple[str, str, str], list[int]] = {}
    left = 0
    try:
        async for row in reader.every_run():
            for charge in charges_in(row.run, [record async for _, record in reader.records(row.run, 0)]):
                one = sums.setdefault((charge.budget, charge.period, charge.limit), [0, 0])
                one[0] += charge.used
                one[1] += charge.reserved
                left += charge.reserved
        counted = [use for day in days for use in await budget_uses(opened, {"support": day})]
    finally:
        await opened.close()
    return [BudgetUse(*key, *both) for key, both in sorted(sums.items())], counted, left


def day() -> str:
    return day_of("UTC", int(time.time() * 1000)).name


SOME = [("request", 2), ("answer", 3), ("before_commit", 2), ("after_commit", 2), ("after_commit", 4)]
POINTS = [(kind, n) for kind in ("request", "answer", "before_commit", "after_commit") for n in range(1, 8)]


OTHERS = [("before_commit", 2), ("request", 3), ("answer", 2), ("after_commit", 4)]


@pytest.mark.deeper
@pytest.mark.parametrize(
    ("limit", "some"),
    [("calls", SOME), *(pytest.param(limit, OTHERS, marks=pytest.mark.deep) for limit in ("cost", "effects"))],
)
def test_no_kill_lets_processes_pass_a_budget_that_they_share(tmp_path: Path, limit: str, some: list[tuple[str, int]]):
    killed = 0
    for kind, number in pick(POINTS, some):
        journal, ours = tmp_path / f"{kind}-{number}.db", kind in {"request", "answer"}
        model, days = Model((kind, number)), [day()]
        with model.serving() as url:
            victim = begin(journal, url, "ann", limit, "-" if ours else kind, number)
            model.child = victim
            others = [begin(journal, url, name, limit) for name in NAMES[1:]]
            printed = [other.communicate(timeout=60)[0] for other in others]
            victim.communicate(timeout=60)
            assert [other.returncode for other in others] == [0, 0], (kind, number)
            killed += victim.returncode == -signal.SIGKILL
            model.kill_at = ("", 0)
            asked = len(model.asked)
            again = begin(journal, url, "ann", limit)
            printed.append(again.communicate(timeout=60)[0])
            assert again.returncode == 0, (kind, number)
        days = sorted({*days, day()})  # the date may change meanwhile, and the limit is one for each day
        sums, counted, left = asyncio.run(sums_and_counters(journal, days))
        counter = "effects" if limit == "effects" else "model_calls"
        used = sum(use.used for use in counted if use.limit == counter)
        assert sums == sorted(counted, key=lambda use: (use.period, use.limit)), (kind, number)
        assert left == 0, (kind, number)
        # A tool that is killed sends the same thing again, which is one effect.
        reached = set(model.asked) if limit == "effects" else model.asked
        assert asked <= len(model.asked), (kind, number)
        assert len(reached) <= used <= LIMIT * len(days), (kind, number, model.asked)
        assert sum(map(int, printed)) <= len(reached), (kind, number)
        cost = sum(use.used for use in counted if use.limit == "cost EUR")
        assert cost == (used * CENT if limit == "cost" else 0), (kind, number)
    assert killed >= 3
