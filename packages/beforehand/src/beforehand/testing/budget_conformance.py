"""The requirements of the port on shared budgets: a counter changes with the records, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

from beforehand.errors import BudgetSpent, LeaseLost, LimitsChanged
from beforehand.journal.cells import BudgetUse, budget_uses
from beforehand.journal.port import Journal, Lease, Post, RunChange, Write
from beforehand.model.money import MOST_UNITS
from beforehand.model.shared_use import Charge
from beforehand.policies import MOST
from beforehand.queues.limits import STREAM
from beforehand.testing.queue_conformance import refused, requirement, start_log
from beforehand.testing.schedule_conformance import ScheduleConformance

BODY = b'{"n":1}'


def reserves(tokens: int, most: int | None = None, *, budget: str = "support", period: str = "2027-01-01") -> Charge:
    """A charge that reserves."""
    return Charge(budget, period, "tokens", 0, tokens, most)


def settles(reserved: int, used: int) -> Charge:
    """A charge that settles a reservation."""
    return Charge("support", "2027-01-01", "tokens", used, -reserved)


async def counted(journal: Journal, period: str = "2027-01-01") -> tuple[int, int]:
    """How many tokens of the budget were used, and how many are reserved."""
    uses = await budget_uses(journal, {"support": period})
    return (uses[0].used, uses[0].reserved) if uses else (0, 0)


class BudgetConformance(ScheduleConformance):
    """The requirements on shared budgets, one test each."""

    @requirement
    async def test_charges_change_their_counters_in_the_commit_of_the_records(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([BODY], charges=(reserves(100),), declared=0)
        assert await counted(journal) == (0, 100)
        log.ride([BODY], (settles(100, 70),))
        await log.flush()
        assert await counted(journal) == (70, 0)
        assert await counted(journal, "2027-01-02") == (0, 0), "each period has counters of its own"
        assert await budget_uses(journal, {"other": "2027-01-01"}) == []
        assert await budget_uses(journal, {}) == []
        assert await budget_uses(journal, None) == [BudgetUse("support", "2027-01-01", "tokens", 70, 0)]
        assert len(await journal.read("r")) == 2

    @requirement
    async def test_a_limit_that_is_reached_refuses_the_whole_write(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([BODY], charges=(reserves(60, 100),), declared=0)
        await log.append([BODY], charges=(reserves(60, 100),), declared=0)
        before = await journal.head()
        # The first charge fits. It is not stored either, and other counters are not changed.
        charges = (reserves(1, 5, budget="acme"), reserves(1, 100))
        error = await refused(
            log.append([BODY], RunChange("suspended"), (Post("s", "k", b"1"),), charges, 0), BudgetSpent
        )
        assert isinstance(error, BudgetSpent)
        assert (error.budget, error.limit, error.used, error.reserved) == ("support", "tokens", 0, 120)
        assert await counted(journal) == (0, 120)
        assert await budget_uses(journal, {"acme": "2027-01-01"}) == []
        assert await journal.head() == before
        assert (await journal.runs())[0].status == "running"
        await log.append([BODY], charges=(settles(120, 10),))
        await log.append([BODY], charges=(reserves(60, 100),), declared=0)
        assert await counted(journal) == (10, 60), "the log is usable afterwards"
        assert [row.seq for row in await journal.read("r")] == [1, 2, 3, 4]

    @requirement
    async def test_what_one_write_settles_makes_room_for_what_it_reserves(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([BODY], charges=(reserves(100, 100),), declared=0)
        await log.append([BODY], charges=(settles(100, 99), reserves(7, 100)), declared=0)
        assert await counted(journal) == (99, 7)

    @requirement
    async def test_writes_at_once_never_pass_a_limit_together(self, journal: Journal) -> None:
        logs = [await start_log(journal, f"r{number}") for number in range(20)]
        answers = await asyncio.gather(
            *(log.append([BODY], charges=(reserves(1, 7),), declared=0) for log in logs), return_exceptions=True
        )
        assert sum(isinstance(answer, BudgetSpent) for answer in answers) == 13
        assert await counted(journal) == (0, 7)

    @requirement
    async def test_other_limits_refuse_a_write_that_names_those_it_has_read(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([BODY], charges=(reserves(1, 7),), declared=0)
        entry = await journal.commit(Post(STREAM, "", b"{}"))
        assert await refused(log.append([BODY], charges=(reserves(1, 7),), declared=0), LimitsChanged)
        assert await refused(log.append([], RunChange("suspended", release=True), declared=0), LimitsChanged)
        assert await counted(journal) == (0, 1)
        assert (await journal.runs())[0].owner == "alice"
        await log.append([BODY], charges=(reserves(1, 7),), declared=entry.id)
        assert await counted(journal) == (0, 2)

    @requirement
    async def test_a_late_owner_charges_nothing(self, journal: Journal) -> None:
        log = await start_log(journal)
        late = Lease("r", log.lease.row, log.lease.token + 1, "bob")
        for rows in ((), log.rows([BODY])):
            assert await refused(journal.commit(Write(late, rows, charges=(reserves(1),))), LeaseLost)
        assert await counted(journal) == (0, 0)

    @requirement
    async def test_a_counter_stays_a_whole_number(self, journal: Journal) -> None:
        log = await start_log(journal)
        await log.append([BODY], charges=(reserves(MOST), settles(MOST, MOST)))
        await log.append([BODY], charges=(reserves(MOST), settles(MOST, MOST)))
        assert await counted(journal) == (MOST, 0)
        assert type((await budget_uses(journal, {"support": "2027-01-01"}))[0].used) is int
        cost = Charge("support", "2027-01-01", "cost EUR", MOST_UNITS - 1, 0)
        await log.append([BODY], charges=(cost, cost))
        assert (await budget_uses(journal, {"support": "2027-01-01"}))[0].used == MOST_UNITS, "a cost counts further"

    def test_counters_outlive_the_process(self, tmp_path: Path) -> None:
        async def first(journal: Journal) -> None:
            await (await start_log(journal)).append([BODY], charges=(reserves(5),))

        async def second(journal: Journal) -> None:
            found = await budget_uses(journal, {"support": "2027-01-01"})
            assert found == [BudgetUse("support", "2027-01-01", "tokens", 0, 5)]

        self.on_journal(tmp_path, first)
        self.on_journal(tmp_path, second)
