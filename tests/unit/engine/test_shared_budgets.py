"""Budgets that runs share: one counter for all processes and runs, exact over crashes, and runs that wait for it."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from beforehand import Natural, Operation, Run, RunSuspended, agent, tool
from beforehand.engine.shared_budgets import is_spent, uses_now
from beforehand.errors import BudgetExceeded, JournalUnavailable, RunStopped
from beforehand.journal.cells import BudgetUse
from beforehand.journal.port import Write
from beforehand.model import records as r
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from beforehand.queues.zones import day_of
from beforehand.testing.clock import EPOCH_MS
from tests.commits import Commit, intercept
from tests.unit.engine.lab import DAYS, Lab, charges_in, virtual
from tests.unit.engine.test_crashes import DiesAt
from tests.unit.engine.test_run_budgets import asking


def limits(**budget: Any) -> DeclaredLimits:
    return DeclaredLimits(budgets={"support": SharedBudget(**budget)})


def counted(lab: Lab) -> dict[tuple[str, str], tuple[int, int]]:
    """What the journal counts, over all days: used and reserved by budget and limit."""
    lab.journal._settle()
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for use in lab.uses():
        used, reserved = found.get((use.budget, use.limit), (0, 0))
        found[use.budget, use.limit] = used + use.used, reserved + use.reserved
    return found


def check_sums(lab: Lab) -> None:
    """The invariant: each counter is the sum over the records of all runs."""
    lab.journal._settle()
    sums: dict[tuple[str, str, str], list[int]] = {}
    for run in lab.journal._runs:
        for charge in charges_in(run, lab.records(run)):
            one = sums.setdefault((charge.budget, charge.period, charge.limit), [0, 0])
            one[0] += charge.used
            one[1] += charge.reserved
    assert {key: BudgetUse(*key, *both) for key, both in sums.items()} == {
        (use.budget, use.period, use.limit): use for use in lab.uses()
    }


@virtual
async def test_runs_share_one_limit_of_calls_and_the_rest_wait_for_the_next_day(lab: Lab):
    desk = asking(lab, calls=2)
    async with lab.app(desk, queues=limits(agent="desk", model_calls=3), recover=True, **DAYS) as app:
        assert await app.run(desk, "ann") == 2
        with pytest.raises(RunSuspended, match="the budget support is reached") as waits:
            await app.run(desk, "bob")
        assert "3 of 3 used" in waits.value.message
        assert len(lab.sent) == 3
        assert counted(lab)["support", "model_calls"] == (3, 0)
        await lab.pass_time(days=1, minutes=2)
        assert (await app.engine.journal.runs(run="r-bob"))[0].status == "completed"
        assert len(lab.sent) == 4
    check_sums(lab)


@virtual
async def test_tokens_are_settled_and_no_call_begins_above_the_limit(lab: Lab):
    desk = asking(lab, 60, 70, 80)
    async with lab.app(desk, queues=limits(tokens=100)) as app:
        with pytest.raises(RunSuspended, match="130 of 100 used"):
            await app.run(desk, "ann")
    assert len(lab.sent) == 2
    assert counted(lab)["support", "tokens"] == (130, 0)
    check_sums(lab)


@virtual
async def test_a_run_that_no_budget_covers_is_neither_counted_nor_slowed(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk, queues=limits(agent="other", model_calls=0)) as app:
        assert await app.run(desk, "ann") == 4
    assert counted(lab) == {}
    assert all(started.shared == () for started in lab.of("r-ann", r.DecisionStarted))


@virtual
async def test_a_budget_that_stops_raises_and_the_refusal_is_on_record(lab: Lab):
    ask_once = asking(lab, calls=2)
    async with lab.app(ask_once, queues=limits(model_calls=1, then="stop")) as app:
        with pytest.raises(BudgetExceeded, match="the budget support is reached"):
            await app.run(ask_once, "ann")
        with pytest.raises(RunStopped):
            await app.run(ask_once, "ann")
    assert lab.of("r-ann", r.RunStoppedRecord)[-1].reason == "budget"
    check_sums(lab)


@virtual
async def test_higher_limits_wake_the_runs_that_wait_whichever_process_declares_them(lab: Lab):
    desk = asking(lab, calls=2)
    async with lab.app(desk, queues=limits(model_calls=1)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    async with lab.app(desk, recover=True) as worker:
        await lab.pass_time(minutes=5)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "suspended"
        async with lab.app(desk, queues=limits(model_calls=1, agent="desk")):
            await lab.pass_time(minutes=1)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "suspended", "it is spent all the same"
        async with lab.app(desk, queues=limits(model_calls=2)):
            await lab.pass_time(minutes=1)
        assert (await worker.engine.journal.runs(run="r-ann"))[0].status == "completed"
    assert lab.sent == ["ask ann 0", "ask ann 1"]
    check_sums(lab)


@virtual
async def test_a_run_that_waits_for_a_budget_that_is_declared_no_more_goes_on(lab: Lab):
    desk = asking(lab, calls=2)
    async with lab.app(desk, queues=limits(model_calls=1)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    async with lab.app(desk, queues=DeclaredLimits(), recover=True) as app:
        await lab.pass_time(minutes=1)
        assert (await app.engine.journal.runs(run="r-ann"))[0].status == "completed"
    check_sums(lab)


@virtual
async def test_a_call_in_flight_reserves_and_others_ask_again_once_it_is_settled(lab: Lab):
    entered = 0

    async def ask(question: str) -> dict[str, Any]:
        nonlocal entered
        entered += 1
        await asyncio.sleep(5)
        refused = question == "ann"
        return {
            "text": question,
            "usage": {"input_tokens": 0 if refused else 10, "output_tokens": 0, "refused": refused},
        }

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(ask, name)
        return name

    async with lab.app(desk, queues=limits(model_calls=1)) as app:
        first = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        second = asyncio.create_task(app.run(desk, "bob"))
        await lab.pass_time(seconds=2)
        assert entered == 1
        assert counted(lab)["support", "model_calls"] == (0, 1)
        assert [await first, await second] == ["ann", "bob"], "a request that was refused has used nothing"
    assert counted(lab)["support", "model_calls"] == (1, 0)
    check_sums(lab)


@virtual
async def test_what_a_lost_call_reserved_counts_as_used_once(lab: Lab):
    async def ask(question: str) -> str:
        if len(lab.sent) == 0:
            lab.sent.append(question)
            await asyncio.get_running_loop().create_future()
        lab.sent.append(question)
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.decide(ask, name)

    app = lab.make(desk, queues=limits(model_calls=5))
    await app.open()
    task = asyncio.create_task(app.run(desk, "ann"))
    await lab.pass_time(seconds=1)
    assert counted(lab)["support", "model_calls"] == (0, 1)
    await lab.bury(app, lab.processes[-1])
    assert task.done()
    check_sums(lab)
    async with lab.app(desk) as again:
        assert await again.run(desk, "ann") == "ann"
    assert counted(lab)["support", "model_calls"] == (2, 0)
    check_sums(lab)


@virtual
async def test_reserving_begins_no_branch_of_the_agent(lab: Lab):
    """What a branch does after a call is found again in a replay, in which nothing is reserved."""

    async def ask(question: str) -> str:
        lab.sent.append(question)
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(ask, "first")
        found = [await asyncio.create_task(run.decide(ask, f"{name}-{number}")) for number in range(3)]
        await run.sleep(timedelta(minutes=1))
        return " ".join([*found, await asyncio.create_task(run.decide(ask, "last"))])

    async with lab.app(desk, queues=limits(model_calls=9)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    await lab.pass_time(minutes=2)
    async with lab.app(desk, queues=limits(model_calls=9)) as app:
        assert await app.run(desk, "ann") == "ann-0 ann-1 ann-2 last"
    assert lab.sent == ["first", "ann-0", "ann-1", "ann-2", "last"]
    assert counted(lab)["support", "model_calls"] == (5, 0)


@pytest.mark.parametrize("wait_ms", [0, 3])
@pytest.mark.parametrize("turns", range(20))
@virtual
async def test_a_branch_that_the_agent_leaves_behind_while_it_reserves_is_settled_with_the_run(
    lab: Lab, turns: int, wait_ms: int
):
    """Its reservation is refused, or counts with the end of the run; neither keeps the run from completing."""

    async def slow(write: Write, commit: Commit) -> None:
        await asyncio.sleep(wait_ms / 1000)
        await commit(write)
        await asyncio.sleep(wait_ms / 1000)

    intercept(lab.journal, Write, slow)

    async def ask(question: str) -> str:
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        left = asyncio.create_task(run.decide(ask, "left behind"))
        for _ in range(turns):
            await asyncio.sleep(wait_ms / 2000)
        return f"{name} {left.done()}"

    for most in (0, 5):
        async with lab.app(desk, queues=limits(model_calls=most, then="stop")) as app:
            assert (await app.run(desk, f"ann-{most}")).startswith("ann")
        assert all(reserved == 0 for _, reserved in counted(lab).values())
        check_sums(lab)


@pytest.mark.parametrize("number", range(1, 40))
@virtual
async def test_a_journal_that_fails_at_any_call_leaves_the_counters_at_the_sum_of_the_records(lab: Lab, number: int):
    desk = asking(lab, 10, 20, calls=2)
    for stored in (False, True):
        app = lab.make(desk, queues=limits(model_calls=50, tokens=5000))
        await app.open()
        lab.journal.fail_next(number, stored=stored)
        with contextlib.suppress(JournalUnavailable):
            await app.run(desk, f"ann-{stored}")
        check_sums(lab)
        lab.journal._faults.clear()
        await app.aclose()
        async with lab.app(desk) as again:
            assert await again.run(desk, f"ann-{stored}") == 2
        check_sums(lab)
    assert all(reserved == 0 for _, reserved in counted(lab).values())


@pytest.mark.parametrize("point", ["before_claim", "after_claim", "before_end", "after_end"])
@virtual
async def test_a_process_that_dies_leaves_the_counters_at_the_sum_of_the_records(lab: Lab, point: str):
    desk = asking(lab, 10, 20, calls=2)
    crash = DiesAt(point, 1)
    app = lab.make(desk, queues=limits(model_calls=50), crash=crash)
    crash.process = lab.processes[-1]
    await app.open()
    task = asyncio.create_task(app.run(desk, "ann"))
    await lab.pass_time(seconds=10)
    task.cancel()
    await lab.bury(app, crash.process)
    check_sums(lab)
    async with lab.app(desk) as again:
        assert await again.run(desk, "ann") == 2
    check_sums(lab)


@pytest.mark.parametrize(
    "zone",
    [
        "America/Santiago",
        *(pytest.param(zone, marks=pytest.mark.deep) for zone in ("Europe/Berlin", "Pacific/Auckland")),
    ],
)
@virtual
async def test_a_day_ends_at_the_midnight_of_its_zone(lab: Lab, zone: str):
    desk = asking(lab, calls=2)
    end_ms = day_of(zone, EPOCH_MS).end_ms
    async with lab.app(desk, queues=limits(model_calls=1, zone=zone), recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        row = (await app.engine.journal.runs(run="r-ann"))[0]
        assert row.due_ms == end_ms
        await asyncio.sleep((end_ms - lab.clock.wall_ms()) / 1000 - 10)
        assert len(lab.sent) == 1
        await lab.pass_time(seconds=60)
        assert len(lab.sent) == 2
    assert len({use.period for use in lab.uses()}) == 2
    check_sums(lab)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
@virtual
async def test_what_is_shown_of_a_day_is_what_the_calls_of_that_day_were_charged(lab: Lab, zone: str):
    """The day is that of the budget's zone, for the calls and for every view of them."""
    desk, declared = asking(lab, calls=2), limits(model_calls=2, zone=zone)
    async with lab.app(desk, queues=declared) as app:
        asked_ms = lab.clock.wall_ms()
        await app.run(desk, "ann")

    def date(at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).date().isoformat()

    for hour in range(-30, 31):
        then = asked_ms + hour * 3_600_000
        uses, same = (await uses_now(lab.journal, declared, then))["support"], date(then) == date(asked_ms)
        assert {use.limit: use.used for use in uses}["model_calls"] == (2 if same else 0), hour
        assert {use.period for use in uses} == {date(then)}
        assert is_spent(declared.budgets["support"], uses) == same


def refused_once(lab: Lab, used: dict[str, int], fails: tuple[str, ...], long: dict[str, int]) -> Any:
    """An agent that asks one question of so many bytes; the first call of each name in `fails` is refused."""

    async def ask(question: str) -> dict[str, Any]:
        name = question.rstrip("x").strip()
        lab.sent.append(name)
        await asyncio.sleep(3)
        if name in fails and lab.sent.count(name) == 1:
            raise Limited("429 rate limited")
        return {"text": name, "usage": {"input_tokens": used.get(name, 10), "output_tokens": 0}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(ask, f"{name} {'x' * long.get(name, 0)}")
        return name

    return desk


class Limited(Exception):
    status_code = 429


@virtual
async def test_calls_that_fail_keep_nothing_reserved_while_they_wait_for_their_next_try(lab: Lab):
    """Two runs whose first calls were refused would otherwise wait for each other until midnight."""
    desk = refused_once(lab, {"ann": 500}, ("bob", "eve"), {"bob": 2600, "eve": 2600})
    async with lab.app(desk, queues=limits(tokens=1000)) as app:
        runs = [asyncio.create_task(app.run(desk, name)) for name in ("ann", "bob", "eve")]
        await lab.pass_time(minutes=1)
        assert [task.done() and task.result() for task in runs] == ["ann", "bob", "eve"]
    assert counted(lab)["support", "tokens"] == (520, 0)
    check_sums(lab)


@virtual
async def test_a_refused_call_counts_nothing_if_its_run_is_suspended_before_the_next_try(lab: Lab):
    desk = refused_once(lab, {"bob": 2000}, ("ann",), {"ann": 2000, "bob": 2000})
    async with lab.app(desk, queues=limits(tokens=1000)) as app:
        runs = [asyncio.create_task(app.run(desk, name)) for name in ("ann", "bob")]
        with pytest.raises(RunSuspended):
            await runs[0]
        assert await runs[1] == "bob"
    assert counted(lab) == {("support", "model_calls"): (1, 0), ("support", "tokens"): (2000, 0)}
    check_sums(lab)


@pytest.mark.parametrize("after_ms", [*range(12), 5000])
@virtual
async def test_a_call_that_its_agent_cancels_holds_nothing_back(lab: Lab, after_ms: int):
    """One that was sent counts as used, and one that was cancelled before counts nothing."""
    lab.lag_s = 0.004

    async def ask(question: str) -> str:
        lab.sent.append(question)
        await asyncio.sleep(3600 if question == "slow" else 1)
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_ms / 1000):
                await run.decide(ask, "slow")
        await asyncio.sleep(600)
        return await run.decide(ask, name)

    async with lab.app(desk, queues=limits(model_calls=2)) as app:
        task = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(minutes=5)
        sent = len(lab.sent)
        assert counted(lab).get(("support", "model_calls"), (0, 0)) == (sent, 0)
        check_sums(lab)
        assert await task == "ann"
    assert counted(lab)["support", "model_calls"] == (sent + 1, 0)
    check_sums(lab)


def busy(lab: Lab, *, seconds: float, others: int = 8, gap: float = 1.0) -> Any:
    """An agent of which `others` branches reserve all the time while one uses a tool."""

    async def ask(question: str) -> str:
        await asyncio.sleep(0.004)
        return question

    @tool(idempotency=Natural())
    async def close(ticket: str) -> str:
        lab.sent.append(ticket)
        return "closed"

    @close.observe
    async def state(op: Operation[str], ticket: str) -> str:
        await asyncio.sleep(0.2)
        return "open"

    async def asks(run: Run, number: int) -> None:
        began = lab.loop.time()
        for turn in range(5000):
            if lab.loop.time() - began > seconds:
                break
            await run.decide(ask, f"{number}-{turn}")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def closes() -> str:
            try:
                async with asyncio.timeout(gap):
                    return await close(name)
            except TimeoutError:
                return "late"

        found, *_ = await run.gather(closes(), *(asks(run, number) for number in range(others)))
        return str(found)

    return desk, close


@pytest.mark.parametrize("step", range(8))
@virtual
async def test_a_tool_call_is_left_beside_branches_that_reserve(lab: Lab, step: int):
    """Its `CallerLeft` was missing where another branch reserved at that moment, and the run diverged."""
    lab.lag_s = 0.002
    desk, close = busy(lab, seconds=0.5, others=3, gap=0.1 + step * 0.0007)
    async with lab.app(desk, tools=[close], queues=limits(model_calls=10**6)) as app:
        assert await app.run(desk, "ann") == "late"
    assert len(lab.of("r-ann", r.CallerLeft)) == 1
    assert lab.sent == ["ann"]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["cancel", "tell"])
@virtual
async def test_branches_that_reserve_delay_no_command_and_no_tool_call(lab: Lab, order: str):
    lab.lag_s = 0.002
    desk, close = busy(lab, seconds=4)
    async with lab.app(desk, tools=[close], queues=limits(model_calls=10**6)) as app:
        task = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=2)
        assert lab.sent == ["ann"]
        given = lab.clock.wall_ms()
        await (
            app.service.cancel("r-ann", by="eve") if order == "cancel" else app.service.tell("r-ann", "hi", by="eve")
        )
        await lab.pass_time(seconds=5)
        (taken,) = lab.of("r-ann", r.CommandApplied if order == "cancel" else r.MessageReceived)
        assert taken.at - given < 1000
        assert isinstance(task.exception(), RunStopped) if order == "cancel" else task.result() == "closed"
    check_sums(lab)
