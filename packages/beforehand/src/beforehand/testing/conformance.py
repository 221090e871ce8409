"""The requirements on every journal, as tests. A journal's test suite inherits from this.

A long file, since it is one list of requirements that reads best in one piece.

    class TestMyJournal(JournalConformance):
        @staticmethod
        def make_journal(place: Path) -> Journal:
            return MyJournal(place / "journal")

`make_journal` returns an unopened journal; for the same place it opens the same one again. The tests
need pytest for its `tmp_path` only, wait for nothing, and may run side by side.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from beforehand.errors import JournalUnavailable, LeaseLost, LedgerTaken, RecordRefused, SendingPaused
from beforehand.journal.backend_rules import FOREVER_MS, MAX_BODY, PAUSED, SENDING
from beforehand.journal.cells import read_hint
from beforehand.journal.port import (
    EVERY_RECORD,
    BodyFilter,
    Busy,
    ClaimRequest,
    HintRequest,
    Journal,
    LeaseGranted,
    LedgerNews,
    NewRun,
    Post,
    Posts,
    Row,
    RunChange,
    RunStatus,
    StatusFilter,
    Write,
)
from beforehand.journal.run_log import RunLog, beginning, genesis, verify_chain
from beforehand.testing.budget_conformance import BudgetConformance
from beforehand.testing.queue_conformance import ALICE, LONG_MS, OVER_MS, refused, requirement, start_log

DESK = NewRun("desk")


def body(value: int) -> bytes:
    """A record's JSON."""
    return b'{"n":%d}' % value


class ListingConformance(BudgetConformance):
    """The requirements on the listing of runs, one test each."""

    # --- the listing ---------------------------------------------------------------------------------

    @requirement
    async def test_a_change_is_listed(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([body(1)], RunChange("suspended", "approval", 17, b'["x"]'))
        (line,) = await journal.runs()
        assert (line.status, line.reason, line.due_ms, line.waits) == ("suspended", "approval", 17, b'["x"]')
        assert line.owner == "alice"

    @requirement
    async def test_what_runs_wait_for_is_read_without_the_rest_of_their_lines(self, journal: Journal) -> None:
        statuses: tuple[RunStatus, ...] = ("suspended", "suspended", "running", "stopped", "stopped", "completed")
        for number, status in enumerate(statuses):
            log = await start_log(journal, run=f"r{number}")
            waits = b"[]" if number == 4 else b'["x"]'
            await log.append([body(1)], RunChange(status, waits=waits))
        expected: dict[StatusFilter, int] = {"suspended": 2, "running": 1, "stopped": 2, "halted": 1}
        for which, count in expected.items():
            lines = await journal.runs(status=which)
            found = await journal.waiting(which)
            assert sorted((one.run, one.agent, one.waits, one.updated_ms) for one in found) == [
                (line.run, line.agent, line.waits, line.updated_ms) for line in lines
            ]
            assert len(found) == count

    @requirement
    async def test_the_listing_is_paged_and_filtered(self, journal: Journal) -> None:
        for run in ("c", "a", "b"):
            log = await start_log(journal, run=run)
            await log.append([body(1)], RunChange("completed" if run == "b" else "running"))
        assert [line.run for line in await journal.runs(limit=2)] == ["a", "b"]
        assert [line.run for line in await journal.runs(after="b")] == ["c"]
        assert [line.run for line in await journal.runs(status="running")] == ["a", "c"]
        assert [line.run for line in await journal.runs(run="b")] == ["b"]
        assert [line.run for line in await journal.runs(newest=True, limit=2)] == ["b", "a"]

    @requirement
    async def test_which_stopped_runs_ask_a_person(self, journal: Journal) -> None:
        asks = b'[{"kind":"halted","step":"","asks":"it diverged","due":null,"at":0}]'
        for run, change in {
            "failed": RunChange("stopped", release=True),
            "halted": RunChange("stopped", waits=asks, release=True),
            "later": RunChange("stopped", waits=asks, release=True),
            "waiting": RunChange("suspended", waits=asks, release=True),
        }.items():
            await (await start_log(journal, run=run)).append([body(1)], change)
        assert [line.run for line in await journal.runs(status="halted")] == ["halted", "later"]
        assert [line.run for line in await journal.runs(status="halted", after="halted")] == ["later"]
        assert [line.run for line in await journal.runs(status="halted", run="failed")] == []
        await (await start_log(journal, run="halted")).append([body(2)], RunChange("stopped", release=True))
        assert [line.run for line in await journal.runs(status="halted")] == ["later"]

    @requirement
    async def test_who_wants_a_worker(self, journal: Journal) -> None:
        far = 2**52
        for run, change in {
            "driven": RunChange("running"),
            "dropped": RunChange("running", release=True),
            "due": RunChange("suspended", due_ms=1, release=True),
            "ended": RunChange("completed", release=True),
            "later": RunChange("suspended", due_ms=far, release=True),
            "waiting": RunChange("suspended", release=True),
            "taken while it waited": RunChange("suspended"),
            "taken after its end": RunChange("stopped"),
        }.items():
            await (await start_log(journal, run=run)).append([body(1)], change)
        assert [line.run for line in await journal.runs(wakeable=True)] == ["dropped", "due"]
        assert [line.run for line in await journal.runs(wakeable=True, limit=1, after="dropped")] == ["due"]
        await journal.beat(ALICE, OVER_MS)
        assert [line.run for line in await journal.runs(wakeable=True)] == [
            "driven",
            "dropped",
            "due",
            "taken after its end",
            "taken while it waited",
        ]

    @requirement
    async def test_what_is_due_is_read_by_agent_and_in_order(self, journal: Journal) -> None:
        changes = {
            "b second": RunChange("suspended", due_ms=3, release=True),
            "c first": RunChange("suspended", due_ms=2, release=True),
            "d later": RunChange("suspended", due_ms=2**52, release=True),
            "e ended": RunChange("completed", release=True),
            "f waits": RunChange("suspended", release=True),
            "i taken after its end": RunChange("completed"),
        }
        for run, change in {**changes, **{f"a {n}": changes["c first"] for n in range(30)}}.items():
            new = beginning("n", run, "other" if run.startswith("a ") else "desk", [body(1)], change)
            assert isinstance(await journal.commit(ClaimRequest(run, "alice", new)), LeaseGranted)
        assert isinstance(
            await journal.commit(ClaimRequest("g held", "alice", beginning("n", "g", "desk", [body(1)]))), LeaseGranted
        )
        dropped = beginning("n", "h dropped", "desk", [body(1)], RunChange("running", release=True))
        await journal.commit(ClaimRequest("h dropped", "alice", dropped))
        first = [line.run for line in await journal.due({("desk", "")}, 2)]
        assert first == ["c first", "b second"]
        assert [line.run for line in await journal.due([("desk", "")], 9)] == [*first, "h dropped"]
        assert [line.run for line in await journal.due([("desk", "")], 1, {"c first"})] == ["b second"]
        assert await journal.due([], 9) == []
        assert len(await journal.due([("desk", ""), ("other", "")], 99)) == 33
        await journal.beat(ALICE, OVER_MS)
        found = [line.run for line in await journal.due([("desk", "")], 9)]
        assert sorted(found) == sorted([*first, "g held", "h dropped", "i taken after its end"])

    @requirement
    async def test_agents_of_one_name_in_two_programs_are_two_agents(self, journal: Journal) -> None:
        due, dropped = RunChange("suspended", due_ms=1, release=True), RunChange("running", release=True)
        for run, change in {"due": due, "dropped": dropped, "held": None}.items():
            for program in ("shop", "billing", ""):
                new = beginning("n", f"{run} {program}", "desk", [body(1)], change, program)
                claimed = await journal.commit(ClaimRequest(f"{run} {program}", "alice", new))
                assert isinstance(claimed, LeaseGranted)
                assert (claimed.row.agent, claimed.row.program) == ("desk", program)
        await journal.beat(ALICE, OVER_MS)
        for program in ("shop", "billing", ""):
            found = await journal.due([("desk", program)], 9)
            assert sorted(line.run for line in found) == sorted(
                f"{run} {program}" for run in ("due", "dropped", "held")
            )
            assert {line.program for line in found} == {program}
            assert [line.program for line in await journal.runs(run=f"due {program}")] == [program]
        assert len(await journal.due([("desk", "shop"), ("desk", "billing")], 99)) == 6
        assert await journal.due([("desk", "other"), ("other", "shop")], 9) == []

    @requirement
    async def test_which_stopped_runs_want_to_be_looked_at(self, journal: Journal) -> None:
        for run, change in {
            "done with": RunChange("stopped", release=True),
            "due": RunChange("stopped", due_ms=1, release=True),
            "later": RunChange("stopped", due_ms=2**52, release=True),
            "looked at now": RunChange("stopped", due_ms=1),
            "waiting": RunChange("suspended", due_ms=1, release=True),
        }.items():
            await (await start_log(journal, run=run)).append([body(1)], change)
        assert [line.run for line in await journal.runs(status="stopped", wakeable=True)] == ["due"]
        assert [line.run for line in await journal.runs(wakeable=True)] == ["waiting"]
        await journal.beat(ALICE, OVER_MS)
        assert [line.run for line in await journal.runs(status="stopped", wakeable=True)] == [
            "due",
            "looked at now",
        ]


class JournalConformance(ListingConformance):
    """The requirements of `beforehand.journal.port`, one test each."""

    # --- runs and leases -----------------------------------------------------------------------------

    @requirement
    async def test_a_run_is_created_only_with_an_agent(self, journal: Journal) -> None:
        assert await journal.commit(ClaimRequest("r", "alice")) is None
        claimed = await journal.commit(ClaimRequest("r", "alice", DESK))
        assert isinstance(claimed, LeaseGranted)
        assert (claimed.row.run, claimed.row.agent, claimed.row.status) == ("r", "desk", "running")
        assert (claimed.row.owner, claimed.last) == ("alice", None)

    @requirement
    async def test_a_run_is_created_together_with_its_first_records(self, journal: Journal) -> None:
        large = b'"' + b"x" * 100_000 + b'"'
        owned = beginning("n", "owned", "desk", [body(1), large])
        claimed = await journal.commit(ClaimRequest("owned", "alice", owned))
        assert isinstance(claimed, LeaseGranted)
        assert (claimed.fresh, claimed.last, claimed.row.owner) == (True, owned.rows[-1], "alice")
        log = RunLog(journal, claimed.lease, claimed.last, genesis("n", "owned"))
        await log.append([body(3)])
        rows = await journal.read("owned")
        assert [row.body for row in rows] == [body(1), large, body(3)]
        assert verify_chain(rows, genesis("n", "owned")) is None

    @requirement
    async def test_a_run_may_be_created_free(self, journal: Journal) -> None:
        change = RunChange("suspended", "to be sent", 17, b'["x"]', release=True)
        free = beginning("n", "free", "desk", [body(1)], change)
        claimed = await journal.commit(ClaimRequest("free", "alice", free))
        assert isinstance(claimed, LeaseGranted)
        assert await refused(journal.commit(Write(claimed.lease)), LeaseLost)
        (line,) = await journal.runs()
        assert (line.status, line.reason, line.due_ms, line.owner) == ("suspended", "to be sent", 17, None)
        again = await journal.commit(ClaimRequest("free", "bob", free))
        assert isinstance(again, LeaseGranted)
        assert (again.fresh, again.last) == (False, free.rows[-1])
        assert len(await journal.read("free")) == 1

    @requirement
    async def test_a_run_whose_first_record_is_refused_is_not_created(self, journal: Journal) -> None:
        new = beginning("n", "r", "desk", [body(1), b"x" * (MAX_BODY + 1)])
        assert await refused(journal.commit(ClaimRequest("r", "alice", new)), RecordRefused)
        assert await journal.runs() == []
        assert isinstance(await journal.commit(ClaimRequest("r", "alice", DESK)), LeaseGranted)

    @requirement
    async def test_a_run_is_not_taken_as_that_of_another_agent(self, journal: Journal) -> None:
        free = RunChange("suspended", release=True)
        await journal.commit(ClaimRequest("r", "alice", NewRun("desk", change=free, program="shop")))
        before = await journal.runs()
        for other in (NewRun("clerk", program="shop"), NewRun("desk", program="billing")):
            refused = await journal.commit(ClaimRequest("r", "bob", other))
            assert isinstance(refused, Busy)
            assert (refused.row.agent, refused.row.program, refused.row.owner) == ("desk", "shop", None)
        assert await journal.runs() == before
        for same in (NewRun("desk", program="shop"), NewRun("desk")):
            claimed = await journal.commit(ClaimRequest("r", "bob", same))
            assert isinstance(claimed, LeaseGranted)
            await journal.commit(Write(claimed.lease, (), free))

    @requirement
    async def test_a_living_owner_is_not_robbed(self, journal: Journal) -> None:
        await start_log(journal)
        for worker in ("bob", "alice"):
            busy = await journal.commit(ClaimRequest("r", worker))
            assert isinstance(busy, Busy)
            assert busy.owner == ALICE

    @requirement
    async def test_a_silent_owner_is_followed_and_fenced_out(self, journal: Journal) -> None:
        old = await start_log(journal)
        await old.append([body(1)])
        await journal.beat(ALICE, OVER_MS)
        claimed = await journal.commit(ClaimRequest("r", "bob"))
        assert isinstance(claimed, LeaseGranted)
        assert claimed.lease.token > old.lease.token
        assert claimed.last is not None
        assert claimed.last.body == body(1)
        assert await refused(journal.commit(Write(old.lease)), LeaseLost)
        assert await refused(old.append([body(2)]), LeaseLost)
        assert [row.body for row in await journal.read("r")] == [body(1)]

    @requirement
    async def test_every_write_of_a_fenced_out_owner_is_told_so(self, journal: Journal) -> None:
        """The token is checked before the sequence number: the current owner's records explain any gap."""
        for after in range(3):
            run = f"r{after}"
            old = await start_log(journal, run=run)
            await old.append([body(1)])
            await journal.beat(ALICE, OVER_MS)
            new = await start_log(journal, run=run, worker="bob")
            await new.append([body(2)] * after if after else [], RunChange("running"))
            await journal.beat(ALICE, LONG_MS)
            rows = old.rows([body(3)])
            gap = (Row(9, body(9), b"h" * 32, old.lease.token),)
            late = [Write(old.lease, rows), Write(old.lease, rows), Write(old.lease, gap)]
            late += [Write(old.lease, one, RunChange("completed", release=True)) for one in (gap, rows)]
            answers = [await refused(journal.commit(write), LeaseLost) for write in late]
            together = await asyncio.gather(*(journal.commit(write) for write in late), return_exceptions=True)
            journal.ride(late[2])
            answers.append(await refused(journal.flush(old.lease), LeaseLost))
            assert all(answers), answers
            assert [type(answer) for answer in together] == [LeaseLost] * len(late)
            assert len(await journal.read(run)) == 1 + after
            (row,) = await journal.runs(run=run)
            assert (row.status, row.token) == ("running", new.lease.token)

    @requirement
    async def test_a_released_run_is_free(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([body(1)], RunChange("suspended", "sleep", release=True))
        assert await refused(log.append([body(2)]), LeaseLost)
        claimed = await journal.commit(ClaimRequest("r", "bob"))
        assert isinstance(claimed, LeaseGranted)
        assert claimed.row.status == "suspended"

    @requirement
    async def test_the_fate_of_workers(self, journal: Journal) -> None:
        unknown = await journal.fate("unregistered")
        assert (unknown.fate, unknown.silent_ms) == ("unknown", FOREVER_MS)
        await journal.beat(ALICE, LONG_MS)
        assert (await journal.fate("alice")).silent_ms == 0
        await journal.beat(ALICE, OVER_MS)
        assert (await journal.fate("alice")).silent_ms >= -OVER_MS

    # --- records -------------------------------------------------------------------------------------

    @requirement
    async def test_records_are_read_as_they_were_written(self, journal: Journal) -> None:
        log = await start_log(journal)
        written = await log.append([body(1), '{"city":"Malmö ☂"}'.encode()])
        written += await log.append([body(3)])
        assert await journal.read("r") == list(written)
        assert await journal.read("r", after=1, limit=1) == [written[1]]
        assert await journal.read("r", limit=2, newest=True) == list(written[1:])
        assert await journal.read("r", after=2, limit=2, newest=True) == [written[2]]
        assert await journal.read("nothing") == []

    @requirement
    async def test_the_records_that_a_reader_selects_are_read(self, journal: Journal) -> None:
        bodies = [
            b'{"kind":"a","step":"x","at":1,"up":2}',
            b'{"kind":"ab","step":"y","at":1,"up":2}',
            b'{"kind":"b","text":"' + b"x" * 20_000 + b'","step":"y"}',
            '{"kind":"b","step":"Malmö ☂","at":1,"up":2}'.encode(),
            b'{"kind":"c","step":"x"}',
        ]
        filters = [
            BodyFilter((b'{"kind":"a"',)),
            BodyFilter((b'{"kind":"b"', b'{"kind":"c"')),
            BodyFilter(naming=(b'"y"',)),
            BodyFilter(naming=(b'"at"',)),
            BodyFilter((b'{"kind":"c"',), ('"Malmö ☂"'.encode(), b'"ab"')),
            BodyFilter(),
        ]
        log = await start_log(journal)
        written = await log.append(bodies)
        for only in filters:
            selected = [row for row in written if only.fits(row.body)]
            rows = await journal.read("r", only=only)
            assert [row for row in rows if only.fits(row.body)] == selected, only
            assert [row for row in rows if row in written] == rows, "others may be left out, and none is changed"
            assert (await journal.read("r", 1, 1, only=only))[:1] == [row for row in rows if row.seq > 1][:1]

    @requirement
    async def test_records_of_all_runs_are_found_by_their_numbers_and_texts(self, journal: Journal) -> None:
        logs = [await start_log(journal, run=run) for run in ("a", "b")]
        written: list[tuple[str, bytes]] = []
        for number, text in enumerate((b"X", b"%", b"y", b"x" * 100_000)):
            await logs[number % 2].append([b'{"word":"' + text + b'"}'])
            written.append((logs[number % 2].lease.run, b'{"word":"' + text + b'"}'))
        found = await journal.search("", EVERY_RECORD, 4)
        assert [(one.run, one.body) for one in found] == written[::-1]
        by_place = {(run, row.seq): row.body for run in ("a", "b") for row in await journal.read(run)}
        assert [by_place[one.run, one.seq] for one in found] == [one.body for one in found]
        first, last = found[-1].number, found[0].number
        assert last - first == 3
        assert (await journal.search("", range(first, last), 9))[:3] == found[1:]
        assert await journal.search("x", range(first, last + 1), 9) == [found[0], found[3]]
        assert await journal.search("%", range(first, last + 1), 9) == [found[2]]
        assert await journal.search("x", range(first, last + 1), 1) == [found[0]]
        assert await journal.search("", range(last + 1, last + 9), 9) == []

    @requirement
    async def test_large_bodies_and_such_as_look_like_pointers_come_back_whole(self, journal: Journal) -> None:
        log = await start_log(journal)
        large = b'"' + b"x" * 100_000 + b'"'
        pointer = b'{"payload":"' + b"0" * 64 + b'"}'
        await log.append([large, pointer, large])
        rows = await journal.read("r")
        assert [row.body for row in rows] == [large, pointer, large]
        assert verify_chain(rows, genesis("n", "r")) is None

    @requirement
    async def test_chains_go_on_from_claim_to_claim(self, journal: Journal) -> None:
        first = await start_log(journal)
        await first.append([body(1), body(2)], RunChange("running", release=True))
        second = await start_log(journal, worker="bob")
        await second.append([body(3)])
        rows = await journal.read("r")
        assert verify_chain(rows, genesis("n", "r")) is None
        assert [row.token for row in rows] == [first.lease.token] * 2 + [second.lease.token]

    @requirement
    async def test_a_late_owner_in_a_batch_fails_alone(self, journal: Journal) -> None:
        logs = [await start_log(journal, run=f"r{number}") for number in range(5)]
        await journal.beat(ALICE, OVER_MS)
        await journal.commit(ClaimRequest("r2", "bob"))
        appends = (log.append([body(1)]) for log in logs)
        answers = await asyncio.gather(*appends, return_exceptions=True)
        assert [isinstance(answer, LeaseLost) for answer in answers] == [False, False, True, False, False]
        stored = [len(await journal.read(f"r{number}")) for number in range(5)]
        assert stored == [1, 1, 0, 1, 1]

    @requirement
    async def test_a_refused_record_fails_alone(self, journal: Journal) -> None:
        good, bad = await start_log(journal, run="good"), await start_log(journal, run="bad")
        gap = Write(bad.lease, (Row(2, body(2), b"h" * 32, bad.lease.token),))
        answers = await asyncio.gather(
            good.append([body(1)]), journal.commit(gap), good.append([body(2)]), return_exceptions=True
        )
        assert [isinstance(answer, RecordRefused) for answer in answers] == [False, True, False]
        assert await refused(bad.append([b"x" * (MAX_BODY + 1)]), RecordRefused)
        await bad.append([body(1)])
        assert [len(await journal.read(run)) for run in ("good", "bad")] == [2, 1]

    @requirement
    async def test_appends_of_one_run_keep_their_order(self, journal: Journal) -> None:
        log = await start_log(journal)
        await asyncio.gather(*(log.append([body(number)]) for number in range(50)))
        assert [row.body for row in await journal.read("r")] == [body(number) for number in range(50)]

    @requirement
    async def test_a_cancelled_append_does_not_break_the_log(self, journal: Journal) -> None:
        log, other = await start_log(journal), await start_log(journal, run="other")
        waiting = asyncio.gather(log.append([body(1)]), other.append([body(1)]), return_exceptions=True)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await log.append([body(2)])
        rows = await journal.read("r")
        assert rows[-1].body == body(2)
        assert verify_chain(rows, genesis("n", "r")) is None

    @requirement
    async def test_a_flush_hears_of_an_append_whose_caller_has_left(self, journal: Journal) -> None:
        old = await start_log(journal)
        await journal.beat(ALICE, OVER_MS)
        assert isinstance(await journal.commit(ClaimRequest("r", "bob")), LeaseGranted)
        writing = asyncio.ensure_future(old.append([body(1)]))
        await asyncio.sleep(0)  # it is on its way
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        flushes = await asyncio.gather(refused(old.flush(), LeaseLost), refused(old.flush(), LeaseLost))
        assert all(flushes), "a flush vouched for a record that is not there"
        assert await refused(old.append([body(2)]), LeaseLost)

    # --- riding --------------------------------------------------------------------------------------

    @requirement
    async def test_what_rides_is_durable_before_a_later_append_returns(self, journal: Journal) -> None:
        log, other = await start_log(journal), await start_log(journal, run="other")
        log.ride([body(1)])
        log.ride([body(2)])
        await other.append([body(1)])
        assert [row.body for row in await journal.read("r")] == [body(1), body(2)]
        log.ride([body(3)])
        await log.append([body(4)])
        assert [row.body for row in await journal.read("r", after=2)] == [body(3), body(4)]

    @requirement
    async def test_flush_makes_what_rides_durable(self, journal: Journal) -> None:
        log = await start_log(journal)
        log.ride([body(1)])
        await log.flush()
        assert len(await journal.read("r")) == 1
        await log.flush()

    @requirement
    async def test_a_refused_ride_is_heard_of(self, journal: Journal) -> None:
        for ask in ("append", "flush"):
            log = await start_log(journal, run=ask)
            await journal.beat(ALICE, OVER_MS)
            await journal.commit(ClaimRequest(ask, "bob"))
            await journal.beat(ALICE, LONG_MS)
            log.ride([body(1)])
            assert await refused(log.flush() if ask == "flush" else log.append([body(2)]), LeaseLost)
            assert await journal.read(ask) == []

    # --- the ledger ----------------------------------------------------------------------------------

    @requirement
    async def test_the_first_entry_under_a_key_is_final(self, journal: Journal) -> None:
        entries = await asyncio.gather(*(journal.commit(Post("s", "k", body(n))) for n in range(4)))
        assert [entry.fresh for entry in entries] == [True, False, False, False]
        assert {entry.body for entry in entries} == {body(0)}
        again = [await journal.commit(Post("s", "", body(9))) for _ in range(2)]
        assert all(entry.fresh for entry in again)

    @requirement
    async def test_several_entries_are_all_there_or_none(self, journal: Journal) -> None:
        both = await journal.commit(Posts((Post("s", "a", body(1)), Post("t", "", body(2)))))
        assert [entry.body for entry in both] == [body(1), body(2)]
        for taken in ("a", "b"):  # one that exists, and one that is given twice
            late = Posts((Post("s", "b", body(3)), Post("s", taken, body(4))))
            assert await refused(journal.commit(late), LedgerTaken), taken
        assert [entry.body for entry in await journal.entries("s")] == [body(1)]

    @requirement
    async def test_streams_are_read_alone_or_below_a_name(self, journal: Journal) -> None:
        for stream in ("a", "a/1", "a/2", "ab", "a/1"):
            await journal.commit(Post(stream, "", b"1"))
        assert [entry.stream for entry in await journal.entries("a/")] == ["a/1", "a/2", "a/1"]
        ones = await journal.entries("a/1")
        assert [entry.stream for entry in ones] == ["a/1", "a/1"]
        assert await journal.entries("a/1", after=ones[0].id) == ones[1:]
        assert await journal.entries("b") == []

    @requirement
    async def test_new_entries_are_found_by_one_read_for_all_streams(self, journal: Journal) -> None:
        assert await journal.news(None) == LedgerNews(0)
        first = await journal.commit(Post("a", "k", body(0)))
        assert await journal.news(None) == await journal.news(first.id) == LedgerNews(first.id)
        await journal.commit(Post("a", "k", body(1)))  # its key is taken: nothing is new
        assert await journal.news(first.id) == LedgerNews(first.id)
        entries = [await journal.commit(Post(stream, "", body(2))) for stream in ("b", "a", "b")]
        assert await journal.news(first.id) == LedgerNews(entries[-1].id, ("b", "a"))
        assert await journal.news(entries[0].id) == LedgerNews(entries[-1].id, ("a", "b"))
        log = await start_log(journal)
        await log.append([body(1)])
        assert await journal.news(entries[-1].id) == LedgerNews(entries[-1].id), "a record is not a ledger entry"
        await log.append([body(2)], posts=(Post("c", "k", b"2"),))
        assert (await journal.news(entries[-1].id)).streams == ("c",)

    @requirement
    async def test_every_commit_is_told_as_a_change(self, journal: Journal) -> None:
        for number in range(5):
            await journal.changed(partial(asyncio.sleep, 0))
            await journal.commit(Post("a", str(number), body(number)))
            assert await journal.changed(partial(asyncio.sleep, 0)) is not False

    @requirement
    async def test_while_all_sending_is_paused_no_attempt_is_stored_nor_anything_behind_it(
        self, journal: Journal
    ) -> None:
        one, two, other = [await start_log(journal, run) for run in ("one", "two", "other")]
        await one.append([body(1)], sends=True)
        await journal.commit(Post(SENDING, f"{PAUSED}0", b"{}"))
        for more in ((), (Post("s", "k", b"1"),)):
            assert await refused(two.append([body(1)], None, more, sends=True), SendingPaused)
        await two.append([body(1)])  # the log is usable, and what is no attempt goes on
        appends = (
            one.append([body(2)], sends=True), one.append([body(3)]), one.append([body(4)], RunChange("suspended")),
            other.append([body(1)]), other.append([b'"%s"' % (b"x" * 10_000)], sends=True), other.append([body(3)]),
        )  # fmt: skip
        await asyncio.gather(*appends, return_exceptions=True)
        for log in (one, two, other):
            rows = await journal.read(log.lease.run)
            assert verify_chain(rows, genesis("n", log.lease.run)) is None, "a record was chained on to one that is not"
            assert not {row.body for row in rows} & {body(2), b'"%s"' % (b"x" * 10_000)}
            assert log.usable or await refused(log.append([body(5)]), SendingPaused)
        await journal.commit(Post(SENDING, "unpause/1", b"{}"))
        await two.append([body(2)], sends=True)
        assert [row.seq for row in await journal.read("two")] == [1, 2]

    @requirement
    async def test_a_pause_is_heard_of_though_the_caller_of_an_attempt_has_left(self, journal: Journal) -> None:
        log = await start_log(journal)
        await journal.commit(Post(SENDING, f"{PAUSED}0", b"{}"))
        writing = asyncio.ensure_future(log.append([body(1)], sends=True))
        await asyncio.sleep(0)  # it is on its way
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        log.ride([body(2)])
        calls = log.flush(), log.flush(), log.append([body(3)])
        behind = {await refused(call, SendingPaused) is not None for call in calls}
        assert ([row.body for row in await journal.read("r")], behind) in (([], {True}), ([body(2), body(3)], {False}))

    @requirement
    async def test_a_taken_key_stops_its_write_alone(self, journal: Journal) -> None:
        log, other = await start_log(journal), await start_log(journal, run="other")
        await log.append([body(1)], posts=(Post("claims", "order-1", b'"r"'),))
        late = other.append([body(1)], RunChange("completed"), (Post("claims", "order-1", b'"other"'),))
        answers = await asyncio.gather(late, other.append([body(2)]), return_exceptions=True)
        assert isinstance(answers[0], LedgerTaken)
        assert answers[0].body == b'"r"'
        assert [row.body for row in await journal.read("other")] == [body(2)]
        assert (await journal.runs(run="other"))[0].status == "running"
        twins = (Post("claims", "x", b"1"), Post("claims", "x", b"2"))
        assert await refused(log.append([body(2)], posts=twins), LedgerTaken)
        assert [entry.body for entry in await journal.entries("claims")] == [b'"r"']

    @requirement
    async def test_rides_wait_behind_an_append_that_may_be_refused(self, journal: Journal) -> None:
        await journal.commit(Post("claims", "taken", b"1"))
        log = await start_log(journal)
        refused = asyncio.ensure_future(log.append([body(1)], posts=(Post("claims", "taken", b"2"),)))
        await asyncio.sleep(0)  # let it begin
        log.ride([body(2)])
        await log.append([body(3)])
        assert isinstance(refused.exception(), LedgerTaken)
        assert [row.body for row in await journal.read("r")] == [body(2), body(3)]

    # --- the head ------------------------------------------------------------------------------------

    @requirement
    async def test_the_head_counts_and_hashes_what_is_durable_and_outlasts_a_close(self, journal: Journal) -> None:
        empty = await journal.head()
        await journal.commit(Post("s", "", b"{}"))
        log = await start_log(journal)
        with_entry = await journal.head()
        await log.append([body(1), body(2)])
        full = await journal.head()
        assert [(one.records, one.entries) for one in (empty, with_entry, full)] == [(0, 0), (0, 1), (2, 1)]
        assert len({one.entries_hash for one in (empty, with_entry, full)}) == 2
        assert len({one.records_hash for one in (empty, with_entry, full)}) == 2
        await journal.close()
        await journal.open()
        assert await journal.head() == full

    # --- the rest ------------------------------------------------------------------------------------

    @requirement
    async def test_hints_are_replaced_by_compare_and_set(self, journal: Journal) -> None:
        assert await read_hint(journal, "breaker") is None
        assert not await journal.commit(HintRequest("breaker", b"2", b"1"))
        assert await journal.commit(HintRequest("breaker", b"1", None))
        assert not await journal.commit(HintRequest("breaker", b"3", None))
        assert await journal.commit(HintRequest("breaker", b"2", b"1"))
        assert await read_hint(journal, "breaker") == b"2"

    @requirement
    async def test_the_clock_does_not_run_backwards(self, journal: Journal) -> None:
        first, second = journal.clock(), journal.clock()
        assert first.epoch == second.epoch
        assert first.earliest_ms <= second.earliest_ms
        assert first.earliest_ms <= first.latest_ms <= second.latest_ms

    def test_a_closed_journal_refuses_and_keeps_everything(self, tmp_path: Path) -> None:
        async def check() -> None:
            journal = self.make_journal(tmp_path)
            before = await journal.open()
            await journal.beat(ALICE, LONG_MS)
            log = await start_log(journal)
            log.ride([body(1)])
            await journal.close()
            await journal.close()
            assert await refused(journal.commit(Write(log.lease)), JournalUnavailable)
            again = self.make_journal(tmp_path)
            after = await again.open()
            assert (after.namespace, after.secret, after.trust) == (before.namespace, before.secret, "trusted")
            assert [row.body for row in await again.read("r")] == [body(1)]
            await again.close()

        asyncio.run(check())

    @requirement
    async def test_an_operators_word_is_recorded(self, journal: Journal) -> None:
        before = await journal.open()
        after = await journal.confirm("doubtful", "ops@example.com")
        assert after.trust == "doubtful"
        assert after.incarnation != before.incarnation
        assert (after.namespace, after.secret) == (before.namespace, before.secret)
        (entry,) = await journal.entries("journal")
        assert b"ops@example.com" in entry.body
