"""The requirements on the listing of every journal, and what all tests of the conformance suite share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.journal.port import Journal, LeaseGranted, NewRun, RunChange, RunStatus, StatusFilter, Worker
from holdfast.journal.run_log import RunLog, beginning, genesis

ALICE = Worker("alice")
BOB = Worker("bob")
DESK = NewRun("desk")
LONG_MS = 3_600_000
OVER_MS = -1000
"""A lease of this length has ended before it began."""


def body(value: int) -> bytes:
    """A record's JSON."""
    return b'{"n":%d}' % value


async def start_log(journal: Journal, run: str = "r", worker: str = "alice") -> RunLog:
    """Claim a run and log to it. The chains of these tests start at the genesis of namespace "n"."""
    claimed = await journal.claim(run, worker, DESK)
    assert isinstance(claimed, LeaseGranted), claimed
    return RunLog(journal, claimed.lease, claimed.last, genesis("n", run))


async def fails(call: Awaitable[object], kind: type[Exception]) -> bool:
    """True if the call raises an error of this kind."""
    try:
        await call
    except kind:
        return True
    return False


class ListingConformance:
    """The requirements on the listing of runs, and the way in which each requirement is tested."""

    make_journal: Callable[[Path], Journal]

    # --- the listing ---------------------------------------------------------------------------------

    def test_a_change_is_listed(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            log = await start_log(journal)
            await log.append([body(1)], RunChange("suspended", "approval", 17, b'["x"]'))
            (line,) = await journal.runs()
            assert (line.status, line.reason, line.due_ms, line.waits) == ("suspended", "approval", 17, b'["x"]')
            assert line.owner == "alice"

        self._run(tmp_path, check)

    def test_what_runs_wait_for_is_read_without_the_rest_of_their_lines(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
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

        self._run(tmp_path, check)

    def test_the_listing_is_paged_and_filtered(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            for run in ("c", "a", "b"):
                log = await start_log(journal, run=run)
                await log.append([body(1)], RunChange("completed" if run == "b" else "running"))
            assert [line.run for line in await journal.runs(limit=2)] == ["a", "b"]
            assert [line.run for line in await journal.runs(after="b")] == ["c"]
            assert [line.run for line in await journal.runs(status="running")] == ["a", "c"]
            assert [line.run for line in await journal.runs(run="b")] == ["b"]
            assert [line.run for line in await journal.runs(newest=True, limit=2)] == ["b", "a"]

        self._run(tmp_path, check)

    def test_which_stopped_runs_ask_a_person(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
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

        self._run(tmp_path, check)

    def test_who_wants_a_worker(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            far = 2**52
            for run, change in {
                "driven": RunChange("running"),
                "dropped": RunChange("running", release=True),
                "due": RunChange("suspended", due_ms=1, release=True),
                "ended": RunChange("completed", release=True),
                "later": RunChange("suspended", due_ms=far, release=True),
                "waiting": RunChange("suspended", release=True),
                "taken while it waited": RunChange("suspended"),
            }.items():
                await (await start_log(journal, run=run)).append([body(1)], change)
            assert [line.run for line in await journal.runs(wakeable=True)] == ["dropped", "due"]
            assert [line.run for line in await journal.runs(wakeable=True, limit=1, after="dropped")] == ["due"]
            await journal.beat(ALICE, OVER_MS)
            assert [line.run for line in await journal.runs(wakeable=True)] == [
                "driven",
                "dropped",
                "due",
                "taken while it waited",
            ]

        self._run(tmp_path, check)

    def test_what_is_due_is_read_by_agent_and_in_order(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            changes = {
                "b second": RunChange("suspended", due_ms=3, release=True),
                "c first": RunChange("suspended", due_ms=2, release=True),
                "d later": RunChange("suspended", due_ms=2**52, release=True),
                "e ended": RunChange("completed", release=True),
                "f waits": RunChange("suspended", release=True),
            }
            for run, change in {**changes, **{f"a {n}": changes["c first"] for n in range(30)}}.items():
                new = beginning("n", run, "other" if run.startswith("a ") else "desk", [body(1)], change)
                assert isinstance(await journal.claim(run, "alice", new), LeaseGranted)
            assert isinstance(
                await journal.claim("g held", "alice", beginning("n", "g", "desk", [body(1)])), LeaseGranted
            )
            dropped = beginning("n", "h dropped", "desk", [body(1)], RunChange("running", release=True))
            await journal.claim("h dropped", "alice", dropped)
            first = [line.run for line in await journal.due({("desk", "")}, 2)]
            assert first == ["c first", "b second"]
            assert [line.run for line in await journal.due([("desk", "")], 9)] == [*first, "h dropped"]
            assert [line.run for line in await journal.due([("desk", "")], 1, {"c first"})] == ["b second"]
            assert await journal.due([], 9) == []
            assert len(await journal.due([("desk", ""), ("other", "")], 99)) == 33
            await journal.beat(ALICE, OVER_MS)
            found = [line.run for line in await journal.due([("desk", "")], 9)]
            assert sorted(found) == sorted([*first, "g held", "h dropped"])

        self._run(tmp_path, check)

    def test_agents_of_one_name_in_two_programs_are_two_agents(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
            due, dropped = RunChange("suspended", due_ms=1, release=True), RunChange("running", release=True)
            for run, change in {"due": due, "dropped": dropped, "held": None}.items():
                for program in ("shop", "billing", ""):
                    new = beginning("n", f"{run} {program}", "desk", [body(1)], change, program)
                    claimed = await journal.claim(f"{run} {program}", "alice", new)
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

        self._run(tmp_path, check)

    def test_which_stopped_runs_want_to_be_looked_at(self, tmp_path: Path) -> None:
        async def check(journal: Journal) -> None:
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

        self._run(tmp_path, check)

    # --- helpers -------------------------------------------------------------------------------------

    def _run(self, place: Path, check: Callable[[Journal], Awaitable[None]]) -> None:
        """Open a journal with two living workers, check it, close it."""

        async def whole() -> None:
            journal = self.make_journal(place)
            await journal.open()
            try:
                await journal.beat(ALICE, LONG_MS)
                await journal.beat(BOB, LONG_MS)
                await check(journal)
            finally:
                await journal.close()

        asyncio.run(whole())
