"""Gates: a person approves exactly one operation before anything is sent, and no approval serves another."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from beforehand import Key, Run, Secret, agent, current_operation, tool
from beforehand.errors import ContractError, RunSuspended, UsageError
from beforehand.inspect.timeline import timeline
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.people.items import items
from beforehand.policies import Gate
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import REFUND, asked, refunds

HOUR = timedelta(hours=1)
STEADY = Key.forever(stores="all")


@virtual
async def test_a_call_below_the_gate_asks_nobody(lab: Lab):
    desk = refunds(lab, cents=5000)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid 5000"
    assert not lab.of("r-ann", r.OperationParked)


@virtual
async def test_it_waits_without_a_process_and_is_sent_once_it_is_approved(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
    assert lab.sent == []
    async with lab.app(desk) as app:
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item, item.agent) == ("approval", REFUND, "desk")
        assert "may refund(cents=9000) be sent? the contract asks for a person: cents > 5000" in item.asks
        await app.service.approve(REFUND, by="bea", why="fair enough")
        assert await items(app.service.reader) == []
        assert await app.run(desk, "ann") == "paid 9000"
    (attempt,) = lab.of("r-ann", r.AttemptStarted)
    assert attempt.approval == lab.of("r-ann", r.OperationParked)[0].asks, "the attempt consumes what was approved"
    notes = [note for one in timeline("r-ann", lab.records("r-ann")).entries for note in one.notes]
    assert ("bea", "approves it: fair enough") in {(one.label, one.text) for one in notes}


@virtual
async def test_a_no_reaches_the_agent_with_its_reason(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.decline(REFUND, by="bea", why="the customer kept it")
        assert await app.run(desk, "ann") == "declined: the customer kept it"
        with pytest.raises(UsageError, match="is failed: it waits for no approval"):
            await app.service.approve(REFUND, by="cid")
    assert lab.sent == []


@virtual
async def test_of_two_words_the_first_counts_and_both_are_on_record(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        both = await asyncio.gather(
            app.service.decline(REFUND, by="bea"), app.service.approve(REFUND, by="cid"), return_exceptions=True
        )
        (refused,) = (one for one in both if isinstance(one, UsageError))
        assert "was already answered by" in str(refused)
        first, second = ("bea", "cid") if isinstance(both[1], UsageError) else ("cid", "bea")
        await app.run(desk, "ann")
    refused_of = {one.by: one.refused for one in lab.of("r-ann", r.CommandApplied)}
    assert not refused_of[first]
    assert refused_of[second]
    assert len(lab.sent) == (1 if first == "cid" else 0)


@virtual
async def test_a_yes_whose_note_tells_of_a_refusal_is_a_yes(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        applied = await app.service.approve(REFUND, by="bea", why="refused by mistake the first time")
        assert (applied.alert, applied.note) == (False, "")
        assert await app.run(desk, "ann") == "paid 9000"
    labels = [note.label for one in timeline("r-ann", lab.records("r-ann")).entries for note in one.notes]
    assert "bea" in labels
    assert "approve" not in labels, "what it said is on record beside it"


@virtual
async def test_an_approval_that_was_not_used_in_time_is_asked_for_again(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.pause_tool("refund", by="ops")
        await app.service.approve(REFUND, by="bea", lasts=2 * HOUR)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=2)
        await app.service.unpause_tool("refund", by="ops")
        await asked(app, desk)
        assert lab.sent == []
        await app.service.approve(REFUND, by="bea")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_a_contract_that_changed_after_the_yes_is_asked_about_again(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
    changed = refunds(lab, timeout=timedelta(seconds=7))
    async with lab.app(changed) as app:
        await asked(app, changed)
        assert lab.sent == []
        first, second = lab.of("r-ann", r.OperationParked)
        assert first.asks != second.asks
        with pytest.raises(UsageError, match="this answer does not say what was shown"):
            await app.service.approve(REFUND, by="bea")
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await app.service.approve(REFUND, by="bea", shown=first.asks)
        await app.service.approve(REFUND, by="bea", shown=second.asks)
        assert await app.run(changed, "ann") == "paid 9000"


@virtual
async def test_a_word_about_what_was_asked_before_serves_nothing_else(lab: Lab):
    """The order names the digest of what was shown; it does not fit what is asked now, or another operation."""
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        stale = r.ApprovalGranted(step="refund#1", approval="0" * 32, by="eve")
        await app.engine.journal.commit(ordered(msgspec.structs.replace(_order(), record=stale)))
        await asked(app, desk)
    assert lab.sent == []
    (order,) = lab.of("r-ann", r.CommandApplied)
    assert "what refund#1 asks about has changed since" in order.refused


def ordered(command: Command) -> Post:
    return Post(command_stream("r-ann"), "", msgspec.json.encode(command))


def _order() -> Any:
    from beforehand.model.commands import Command

    return Command("approve", "eve")


@virtual
async def test_resolve_is_no_way_around_an_approval(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="waits for an approval"):
            await app.service.resolve(REFUND, "retry", by="eve")


@virtual
async def test_one_approval_covers_the_retries_of_its_operation(lab: Lab):
    tries = iter([ConnectionResetError("cut"), None])

    @tool(gate="true", idempotency=STEADY)
    async def refund(cents: int) -> str:
        _ = current_operation().key
        if (error := next(tries)) is not None:
            raise error
        return "paid"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund(1)

    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
        assert await app.run(desk, "ann") == "paid"
    assert len(lab.of("r-ann", r.AttemptStarted)) == 2
    assert len(lab.of("r-ann", r.OperationParked)) == 1


@virtual
async def test_a_cancelled_run_calls_off_what_was_asked(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.cancel("r-ann", by="ops")
        with pytest.raises(Exception, match="cancelled"):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="waits for no approval"):
            await app.service.approve(REFUND, by="bea")
    assert lab.sent == []


@dataclass(frozen=True)
class Order:
    price: Decimal
    items: tuple[str, ...]


@virtual
async def test_a_gate_sees_money_lists_and_structures(lab: Lab):
    @tool(gate="order.price > 10.0 && 'safe' in order.items", idempotency=STEADY)
    async def ship(order: Order) -> str:
        _ = current_operation().key
        return "shipped"

    @agent(run_id="r-{name}", tools=[ship])
    async def desk(run: Run, name: str) -> str:
        await ship(Order(Decimal("9.99"), ("safe",)))
        await ship(Order(Decimal("99.00"), ("book",)))
        return await ship(Order(Decimal("99.00"), ("safe", "book")))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="r-ann/ship#3"):
            await app.run(desk, "ann")


@virtual
async def test_what_cannot_be_judged_is_asked_about(lab: Lab):
    """A gate that has no answer for these arguments never lets them through."""
    desk = refunds(lab, gate="100 / cents > 1", cents=0)
    async with lab.app(desk) as app:
        await asked(app, desk)
    assert lab.sent == []


@pytest.mark.parametrize(
    ("gate", "clauses", "says"),
    [
        ("amount > 1", {}, "it uses amount; choose from: cents"),
        ("cents >", {}, "gate='cents >'"),
        ("token == 'x'", {"redact": ["token"]}, "it uses token"),
        ("cents > 1", {"effect": "read"}, "it needs no approval"),
    ],
)
def test_a_gate_that_cannot_be_judged_is_refused_where_it_is_declared(gate: str, clauses: Any, says: str):
    with pytest.raises(ContractError, match=says):

        @tool(gate=gate, **clauses)
        async def pay(cents: int, token: Secret) -> str:
            return ""


@virtual
async def test_two_people_have_to_say_yes_under_two_names(lab: Lab):
    desk = refunds(lab, gate=Gate("cents > 5000", people=2))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
        with pytest.raises(UsageError, match="bea approved it already"):
            await app.service.approve(REFUND, by="bea")
        (item,) = await items(app.service.reader)
        assert "2 people, bea said yes" in item.asks
        await asked(app, desk)
        assert lab.sent == []
        await app.service.approve(REFUND, by="cid")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_two_who_say_yes_at_once_are_two(lab: Lab):
    desk = refunds(lab, gate=Gate("true", people=2))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await asyncio.gather(app.service.approve(REFUND, by="bea"), app.service.approve(REFUND, by="cid"))
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_a_second_yes_is_told_whether_another_person_is_needed(lab: Lab):
    for people, told in ((1, "it waits for no further yes"), (2, "another person has to say yes, too")):
        desk = refunds(lab, gate=Gate("cents > 5000", people=people))
        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, f"ann{people}")
            refund = REFUND.replace("ann", f"ann{people}")
            await app.service.approve(refund, by="bea")
            with pytest.raises(UsageError, match=f"bea approved it already.*{told}"):
                await app.service.approve(refund, by="bea")


@virtual
async def test_one_person_is_one_however_the_name_is_typed(lab: Lab):
    desk = refunds(lab, gate=Gate("true", people=2))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="Bea")
        with pytest.raises(UsageError, match="approved it already"):
            await app.service.approve(REFUND, by=" bea ")
        given = r.ApprovalGranted(step="refund#1", approval=lab.of("r-ann", r.OperationParked)[0].asks, by="BEA")
        body = msgspec.json.encode(Command("approve", "BEA", record=given))
        await lab.journal.commit(Post(command_stream("r-ann"), "", body))
        await asked(app, desk)
    assert lab.sent == []


@virtual
async def test_one_no_ends_what_two_were_asked(lab: Lab):
    desk = refunds(lab, gate=Gate("true", people=2))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
        await app.service.decline(REFUND, by="cid", why="no")
        assert await app.run(desk, "ann") == "declined: no"
    assert lab.sent == []


@virtual
async def test_nobody_answers_in_time_and_the_agent_is_told_so(lab: Lab):
    """Time alone never sends anything; the code for no answer differs from the code for a refusal."""
    desk = refunds(lab, gate=Gate("true", within=2 * HOUR))
    async with lab.app(desk) as app:
        await asked(app, desk)
        (row,) = await app.service.runs()
        assert row.due_ms == lab.of("r-ann", r.OperationParked)[0].until
        await lab.pass_time(hours=3)
        assert await app.run(desk, "ann") == "expired: no yes or no came in time"
        assert (await app.service.history("r-ann")).operations["refund#1"].settlement.code == "expired"
        with pytest.raises(UsageError, match="waits for no approval"):
            await app.service.approve(REFUND, by="bea")
    assert lab.sent == []


@virtual
async def test_a_yes_after_the_time_for_it_is_none_although_nobody_has_looked_since(lab: Lab):
    desk = refunds(lab, gate=Gate("true", within=2 * HOUR))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await lab.pass_time(hours=3)
        with pytest.raises(UsageError, match="the time to answer r-ann/refund#1 is over"):
            await app.service.approve(REFUND, by="bea")
        assert await app.run(desk, "ann") == "expired: no yes or no came in time"
    assert lab.sent == []


@pytest.mark.parametrize("clauses", [{"people": 0}, {"within": timedelta(0)}])
def test_a_gate_that_makes_no_sense_is_refused(clauses: Any):
    with pytest.raises(ValueError, match="people"):
        Gate("true", **clauses)


@virtual
async def test_what_was_approved_and_is_unknown_now_is_asked_about_as_such(lab: Lab):
    """The yes was to sending it. What became of it is another question, and another command answers it."""

    @tool(gate=Gate("true", people=2, within=HOUR))
    async def pay(cents: int) -> str:
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(1)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match=r"beforehand answer r-ann/pay#1 no"):
            await app.run(desk, "ann")
        for name in ("bea", "cid"):
            await app.service.approve("r-ann/pay#1", by=name)
        with pytest.raises(RunSuspended, match="beforehand resolve r-ann/pay#1 --happened"):
            await app.run(desk, "ann")
        (item,) = await items(app.service.reader)
        assert (item.kind, item.due_ms, item.then) == ("review", EPOCH_MS + 7 * 24 * 3_600_000, "hold")
        assert "people" not in item.asks
        await app.service.resolve("r-ann/pay#1", "happened", by="eve", evidence="the bank says so", result="paid")
        assert await app.run(desk, "ann") == "paid"


@virtual
async def test_an_order_to_try_again_that_meets_a_question_for_approval_is_refused(lab: Lab):
    """It was given while something else was the matter; by now it would send what was not approved."""
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        order = msgspec.structs.replace(_order(), word="resolve", record=r.Resolved("refund#1", "retry", "eve", 0))
        await app.engine.journal.commit(ordered(order))
        await asked(app, desk)
    assert lab.sent == []
    assert "waits for an approval" in lab.of("r-ann", r.CommandApplied)[0].refused


@virtual
async def test_an_approval_shorter_than_the_error_of_the_clocks_is_refused(lab: Lab):
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="clocks may differ"):
            await app.service.approve(REFUND, by="bea", lasts=timedelta(seconds=30))
