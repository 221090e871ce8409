"""Whatever waits for a person has a deadline that was recorded when it was asked, and says what happens then."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Operation, Rejected, Run, agent, current_operation, tool
from beforehand.errors import Ambiguous, ReplayDiverged, RunSuspended
from beforehand.model import records as r
from beforehand.people import Policy, Rule
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.dossier import Dossier, dossier
from beforehand.people.items import InboxItem, items
from beforehand.policies import Gate
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import refunds

DAY_MS = 86_400_000
QUIET: Any = {"poll_ms": 600_000, "recover_every_ms": 36_000_000, "lease_ms": 36_000_000}


async def asked(app: Any, desk: Any) -> tuple[InboxItem, Dossier]:
    """Let the run ask; how it stands in the list and in full."""
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")
    (item,) = await items(app.service.reader)
    return item, await dossier(app.service, item.item)


@virtual
async def test_an_approval_without_a_time_of_its_own_expires_and_is_not_called_a_no(lab: Lab):
    desk = refunds(lab, gate="true")
    async with lab.app(desk, **QUIET) as app:
        item, about = await asked(app, desk)
        until = lab.clock.wall_ms() + 7 * DAY_MS
        assert (item.due_ms, item.then, about.due_ms) == (until, "refuse", until)
        assert about.default == "it is refused, and nothing is sent"
        (row,) = await lab.journal.runs(run="r-ann")
        assert row.due_ms == until, "it wakes by itself"
        await lab.pass_time(days=7)
        assert await app.resume("r-ann") == "expired: no yes or no came in time"
    (parked,) = lab.of("r-ann", r.OperationParked)
    assert parked.until == until
    assert lab.sent == []


@virtual
async def test_a_later_setting_moves_no_deadline_that_is_on_record(lab: Lab):
    desk = refunds(lab, gate="true")
    async with lab.app(desk, **QUIET) as app:
        item, _ = await asked(app, desk)
    for answer_within_ms in (DAY_MS, 0):
        async with lab.app(desk, answer_within_ms=answer_within_ms, **QUIET) as app:
            await lab.pass_time(days=2)
            with pytest.raises(RunSuspended):
                await app.resume("r-ann")
            (same,) = await items(app.service.reader)
            assert same.due_ms == item.due_ms


@virtual
async def test_a_gate_and_a_rule_that_name_a_time_keep_it(lab: Lab):
    desk = refunds(lab, gate=Gate("true", within=timedelta(days=30)))
    async with lab.app(desk, **QUIET) as app:
        item, _ = await asked(app, desk)
    assert item.due_ms == lab.clock.wall_ms() + 30 * DAY_MS


@virtual
async def test_a_rule_may_say_only_what_happens_at_the_deadline(lab: Lab):
    desk = refunds(lab, gate="false")
    policy = Policy("desk", rules=(Rule("all", "true", "ask", on_expiry="hold"),))
    async with lab.app(desk, policy=policy, answer_within_ms=DAY_MS, **QUIET) as app:
        item, about = await asked(app, desk)
        assert (item.due_ms, item.then) == (lab.clock.wall_ms() + DAY_MS, "hold")
        assert about.default == "it goes on waiting, first in the list"
        await lab.pass_time(days=2)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        assert (await items(app.service.reader))[0].due_ms == item.due_ms, "it is overdue, and is shown as such"
        await answer(app.service, item.item, a.Approve(), by="bea")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_without_the_setting_people_take_as_long_as_the_run_has(lab: Lab):
    desk = refunds(lab, gate="true")
    async with lab.app(desk, answer_within_ms=0, **QUIET) as app:
        item, about = await asked(app, desk)
    assert (item.due_ms, about.due_ms, about.default) == (None, None, "it waits for as long as the run has")


@pytest.mark.parametrize(("default", "then"), [("Rome", "default"), (None, "timeout")])
@virtual
async def test_a_question_without_a_time_has_its_default_or_says_that_nobody_answered(
    lab: Lab, default: str | None, then: str
):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await run.ask("Which city?", default=default)
        except TimeoutError as nobody:
            return str(nobody)

    async with lab.app(desk, **QUIET) as app:
        item, about = await asked(app, desk)
        assert (item.due_ms, item.then) == (lab.clock.wall_ms() + 7 * DAY_MS, then)
        assert ("; without an answer: Rome)" in item.asks) == (default is not None)
        assert about.default == ("the answer is Rome" if default else "the agent gets a TimeoutError")
        await lab.pass_time(days=7)
        assert await app.resume("r-ann") == (default or "no answer to 'Which city?' came in time")


@virtual
async def test_a_hand_off_without_a_time_has_that_of_the_setting(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.hand_off("person", why="a strike", default="wait")

    async with lab.app(desk, answer_within_ms=DAY_MS, **QUIET) as app:
        item, _ = await asked(app, desk)
        assert (item.due_ms, item.then) == (lab.clock.wall_ms() + DAY_MS, "default")
        await lab.pass_time(days=1)
        assert await app.resume("r-ann") == "wait"


@virtual
async def test_a_review_is_overdue_and_waits_on_for_nobodys_silence_says_what_happened(lab: Lab):
    @tool
    async def send(to: str) -> str:
        raise Ambiguous("no answer")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, answer_within_ms=DAY_MS, **QUIET) as app:
        item, about = await asked(app, desk)
        assert (item.kind, item.due_ms, item.then) == ("review", lab.clock.wall_ms() + DAY_MS, "hold")
        assert about.default == ("it goes on waiting, first in the list: only evidence or a person's answer ends it")
        await lab.pass_time(days=2)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        (late,) = await items(app.service.reader)
        assert late.due_ms == item.due_ms
        await answer(app.service, item.item, a.HappenedAnswer(result="m-1"), by="bea")
        assert await app.run(desk, "ann") == "m-1"


@virtual
async def test_a_parked_transaction_has_a_deadline_too(lab: Lab):
    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        return f"B1 {current_operation().key[:0]}"

    @book.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def drop(operation: Operation[str]) -> None:
        raise Rejected(f"no way back {current_operation().key[:0]}")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book("Rome")
            raise ValueError("the hotel is full")

    async with lab.app(desk, **QUIET) as app:
        item, about = await asked(app, desk)
    assert (item.item, item.due_ms) == ("r-ann/trip", lab.clock.wall_ms() + 7 * DAY_MS)
    assert about.due_ms == item.due_ms
    assert about.default.startswith("it goes on waiting")


@virtual
async def test_a_run_that_cannot_go_on_has_one_and_a_rebuilt_listing_keeps_it(lab: Lab):
    @tool(gate="true")
    async def pay(cents: int) -> str:
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(2 if lab.changed else 1)

    async with lab.app(desk, answer_within_ms=3 * DAY_MS, **QUIET) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        lab.changed = True
        with pytest.raises(ReplayDiverged):
            await app.resume("r-ann")
        (item,) = await items(app.service.reader)
    assert (item.kind, item.due_ms, item.then) == ("handoff", lab.clock.wall_ms() + 3 * DAY_MS, "hold")
