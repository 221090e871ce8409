"""Histories that are kept between two readings: each is what its run has on record, whatever happened to the file."""

import asyncio

import pytest

from beforehand.engine.caches import KEPT_BYTES, WORTH_KEEPING, RecentHistories
from beforehand.errors import ChainBroken, Unreadable
from beforehand.journal.port import Row
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import beginning
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory

SPACE = "a journal"
STARTED = r.RunStarted(agent="desk", input=r.Raw(b"1"), digest="d", version="v1")


class Stored:
    """The records of some runs, as a journal reads them; `given` counts those that it returned."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.given = 0

    def write(self, run: str, *values: int, damaged: bytes = b"") -> Row:
        taken = [r.ValueRecorded(step=f"now#{one}", what="now", value=r.Raw(b"%d" % one)) for one in values]
        bodies = [encode(STARTED), *map(encode, taken), *([damaged] if damaged else [])]
        self.rows[run] = list(beginning(SPACE, run, "desk", bodies).rows)
        return self.rows[run][-1]

    async def read(self, run: str, after: int = 0, limit: int = 1000) -> list[Row]:
        found = self.rows[run][after : after + limit]
        self.given += len(found)
        return found


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def recent(stored: Stored) -> RecentHistories:
    return RecentHistories(stored)  # type: ignore[arg-type]  # it only reads


def read(recent: RecentHistories, run: str, last: Row | None = None) -> RunHistory:
    return asyncio.run(recent.read(run, SPACE, last))


def test_only_new_records_are_read_again(stored: Stored, recent: RecentHistories):
    stored.write("one", *range(WORTH_KEEPING))
    first = read(recent, "one")
    last, stored.given = stored.write("one", *range(WORTH_KEEPING + 1)), 0
    second = read(recent, "one", last)
    assert (first.records, second.records, stored.given) == (WORTH_KEEPING + 1, WORTH_KEEPING + 2, 1)
    assert set(second.steps.answers) - set(first.steps.answers) == {f"now#{WORTH_KEEPING}"}


def test_what_a_reader_adds_to_its_history_is_in_no_other(stored: Stored, recent: RecentHistories):
    stored.write("one", *range(WORTH_KEEPING))
    (read(recent, "one")).add(r.RunSuspendedRecord(reason="not on record"))
    assert (read(recent, "one")).lifecycle.status == "running"


def test_a_history_that_does_not_end_where_the_run_does_is_read_anew(stored: Stored, recent: RecentHistories):
    values = range(WORTH_KEEPING)
    stored.write("one", *values)
    read(recent, "one")
    last = stored.write("one", *reversed(values))  # as many records, and other ones
    assert list((read(recent, "one", last)).steps.answers) == [f"now#{one}" for one in reversed(values)]
    last = stored.write("one", *values[:-5])  # the file was set back while it was open
    assert (read(recent, "one", last)).records == WORTH_KEEPING - 4
    last = stored.write("one", *reversed(values), 7_000)  # it was set back, and went on
    assert (read(recent, "one", last)).records == WORTH_KEEPING + 2


def test_a_broken_chain_is_found_behind_what_was_kept(stored: Stored, recent: RecentHistories):
    stored.write("one", *range(WORTH_KEEPING))
    read(recent, "one")
    stored.write("one", *range(WORTH_KEEPING + 5))
    del stored.rows["one"][WORTH_KEEPING + 2]
    with pytest.raises(ChainBroken, match=f"record {WORTH_KEEPING + 3} was changed"):
        read(recent, "one")
    stored.rows["two"] = []
    with pytest.raises(ChainBroken, match="its records are missing"):
        read(recent, "two")


def test_a_record_that_cannot_be_read_leaves_no_half_history(stored: Stored, recent: RecentHistories):
    stored.write("one", *range(WORTH_KEEPING))
    read(recent, "one")
    stored.write("one", *range(WORTH_KEEPING), 7, damaged=b'{"kind":"FromTheFuture"}')
    for _ in range(2):
        with pytest.raises(Unreadable):
            read(recent, "one")


def test_short_histories_are_not_kept_and_long_ones_up_to_a_size(
    stored: Stored, recent: RecentHistories, monkeypatch: pytest.MonkeyPatch
):
    stored.write("short", 1, 2)
    stored.write("one", *range(WORTH_KEEPING))
    stored.write("two", *range(WORTH_KEEPING))
    size = sum(len(row.body) for row in stored.rows["one"])
    assert size < KEPT_BYTES
    monkeypatch.setattr("beforehand.engine.caches.KEPT_BYTES", 2 * size - 1)
    reads: list[bool] = []
    for run in ("short", "short", "one", "one", "two", "two", "one"):
        stored.given = 0
        read(recent, run)
        reads.append(stored.given > 0)
    assert reads == [True, True, True, False, True, False, True]
