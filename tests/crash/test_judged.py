"""A ruling whose processes are really killed: at every occurrence of every point of a run that a policy judges.

Whoever goes on has another policy. What was ruled stands once anything could have been sent by it; before that nothing
was sent, and the new policy judges.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.journal.codec import decode
from holdfast.journal.sqlite.journal import SqliteJournal
from holdfast.model import records as r
from tests.crash.forks import Forks

RUN = "refund-ann"


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.judged")
    yield program
    program.end()


def heard(place: Path) -> tuple[str, dict[str, int]]:
    said, points = json.loads(Path(f"{place}.heard").read_text())
    return said, points


def paid(place: Path) -> int:
    file = Path(f"{place}.paid")
    return len(file.read_text().splitlines()) if file.exists() else 0


def records(place: Path) -> list[r.Record]:
    async def read() -> list[r.Record]:
        journal = SqliteJournal(place)
        await journal.open()
        try:
            return [decode(row.body) for row in await journal.read(RUN)]
        finally:
            await journal.close()

    return asyncio.run(read())


@pytest.mark.parametrize("then", ["refuse", "ask"])
def test_a_kill_at_every_point_leaves_one_ruling_for_each_policy_that_had_a_say(
    lives: Forks, tmp_path: Path, then: str
):
    first = tmp_path / "first" / "desk.db"
    first.parent.mkdir()
    assert lives.live("auto", str(first), "", 0) == 0
    said, points = heard(first)
    assert (said, paid(first)) == ("paid", 1)
    places = [(point, number) for point, times in sorted(points.items()) for number in range(1, times + 1)]
    assert {"before_commit", "after_commit", "after_intent", "before_outcome"} <= {point for point, _ in places}
    for point, number in places:
        place = tmp_path / f"{point}-{number}" / "desk.db"
        place.parent.mkdir()
        assert lives.live("auto", str(place), point, number) == -9
        assert lives.live(then, str(place), "", 0) == 0
        _check(place, then, f"killed at {point} {number}")


def _check(place: Path, then: str, when: str) -> None:
    said, _ = heard(place)
    told = records(place)
    rulings = [one.ruling.word for one in told if isinstance(one, r.Ruled)]
    attempts = [one for one in told if isinstance(one, r.AttemptStarted)]
    if attempts:
        assert (rulings, said) == (["auto"], "paid"), when
        assert paid(place) in {1, 2}, when  # an attempt that was cut short is repeated under its key
        begun = next(place for place, one in enumerate(told) if isinstance(one, r.AttemptStarted))
        assert any(isinstance(one, r.Ruled) for one in told[:begun]), when
    else:
        assert paid(place) == 0, when
        assert rulings[-1:] == [then], when
        assert said == "refused" if then == "refuse" else said.startswith("waits: "), when
