"""What a person allowed once is sent once: each order of a person to send it again takes a new yes."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.control.service import ControlService
from beforehand.engine.commands import command_post
from beforehand.errors import RunSuspended, SignInNeeded, UsageError
from beforehand.journal.entry_codec import written
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.standing_permission import StandingPermission
from beforehand.people import answers as a
from beforehand.people.answering import answer, answer_idempotently
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand.people.standing_permissions import add_standing, list_standing
from beforehand.policies import Gate, Require, Retry
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

PAY = "r-ann/pay#1"
Orders = Literal["retry", "same_key"]
ORDERS: tuple[Orders, ...] = ("retry", "same_key")
BANK = "the bank says so"


def paying(lab: Lab, gate: str | Gate = "cents > 5000", *, answers: int = 99, **clauses: Any) -> Any:
    """An agent that pays; the service is silent until it is called `answers` times."""
    once = {"retry": Retry(attempts=1), "idempotency": Key.forever(), **clauses}

    @tool(gate=gate, **once)
    async def pay(cents: int) -> str:
        _ = current_operation().key
        lab.sent.append(f"pay {cents}")
        if len(lab.sent) < answers:
            raise TimeoutError("no answer")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000)

    return desk


async def says(service: ControlService, word: Any, by: str = "bea", evidence: str = BANK) -> None:
    """A person says what happened, or orders another send."""
    await service.resolve(PAY, word, by=by, evidence=evidence, result="paid" if word == "happened" else None)


async def waits(app: Any, desk: Any) -> None:
    """The run goes on until it waits for a person."""
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann", by="ann")


async def unknown(app: Any, desk: Any, by: str = "bea") -> None:
    """It was approved and sent, and nobody knows what happened."""
    await waits(app, desk)
    await app.service.approve(PAY, by=by)
    await waits(app, desk)
    (item,) = await items(app.service.reader)
    assert item.kind == "review"


@pytest.mark.parametrize("word", ORDERS)
@virtual
async def test_an_order_to_send_again_takes_a_new_yes(lab: Lab, word: Orders):
    desk = paying(lab, answers=3)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        for sent in (1, 2):
            first = (await load_item(app.service.reader, PAY)).digest
            await app.service.resolve(PAY, word, by="bea", evidence=BANK, shown=first)
            await waits(app, desk)
            assert lab.sent == ["pay 9000"] * sent, "nothing is sent without a yes"
            (item,) = await items(app.service.reader)
            assert (item.kind, item.item) == ("approval", PAY)
            said = "that it did not happen" if word == "retry" else "to send it under the same key"
            assert f"bea says {said} ({BANK})" in item.asks
            with pytest.raises(UsageError, match="has changed since it was shown"):
                await app.service.approve(PAY, by="cid", shown=first)
            await app.service.approve(PAY, by="cid", shown=(await load_item(app.service.reader, PAY)).digest)
            if sent == 1:
                await waits(app, desk)
        assert await app.run(desk, "ann") == "paid 9000"
    assert len(lab.sent) == 3
    approvals = [one.approval for one in lab.of("r-ann", r.AttemptStarted)]
    assert len(set(approvals)) == 3, "each send has a yes of its own"


@virtual
async def test_a_yes_is_not_taken_for_the_next_question(lab: Lab):
    desk = paying(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        digest = (await load_item(app.service.reader, PAY)).digest
        await app.service.approve(PAY, by="bea", shown=digest)
        await waits(app, desk)
        await app.service.resolve(PAY, "retry", by="bea", evidence=BANK)
        await waits(app, desk)
        with pytest.raises(UsageError):
            await answer(app.service, PAY, a.Approve(), by="bea", shown=digest)
        with pytest.raises(UsageError, match="does not say what was shown"):
            await app.service.approve(PAY, by="bea")
    assert len(lab.sent) == 1


@virtual
async def test_the_runtime_sends_again_under_the_same_yes(lab: Lab):
    desk = paying(lab, answers=3, retry=Retry(attempts=3, base=timedelta(milliseconds=1)))
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.approve(PAY, by="bea")
        assert await app.run(desk, "ann") == "paid 9000"
    assert len(lab.sent) == 3


@pytest.mark.parametrize("word", ["happened", "did_not_happen", *ORDERS])
@virtual
async def test_who_may_not_approve_may_not_say_what_happened(lab: Lab, word: Any):
    desk = paying(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        with pytest.raises(UsageError, match="ann asked for run r-ann"):
            await says(app.service, word, "ann")
        record = r.Resolved(step="pay#1", word=word, by="Ann", attempts=1, evidence=BANK)
        await app.service.sink.post(command_post("r-ann", written(Command("resolve", "Ann", BANK, record))))
        await waits(app, desk)
        assert lab.of("r-ann", r.CommandApplied)[-1].refused == "Ann proposed it"
        (item,) = await items(app.service.reader)
        assert item.kind == "review"
    assert len(lab.sent) == 1


@pytest.mark.parametrize("evidence", ["", "  \n"])
@virtual
async def test_it_takes_evidence(lab: Lab, evidence: str):
    desk = paying(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        for word in ("happened", "did_not_happen", "retry", "same_key"):
            with pytest.raises(UsageError, match="how do you know"):
                await says(app.service, word, evidence=evidence)
        record = r.Resolved(step="pay#1", word="did_not_happen", by="bea", attempts=1, evidence=evidence)
        await app.service.sink.post(command_post("r-ann", written(Command("resolve", "bea", "", record))))
        await waits(app, desk)
        assert "how do you know" in lab.of("r-ann", r.CommandApplied)[-1].refused
    assert len(lab.sent) == 1


@pytest.mark.parametrize("word", ["happened", *ORDERS])
@virtual
async def test_it_takes_the_sign_in_that_the_yes_took(lab: Lab, word: Any):
    require = Require(fresh_sign_in=timedelta(minutes=10), person=True)
    desk = paying(lab, Gate("cents > 5000", require=require))
    async with lab.app(desk) as app:
        await waits(app, desk)

        def signed_in(ms_ago: int) -> ControlService:
            return ControlService(app.engine, via="password", proven_ms=lab.clock.wall_ms() - ms_ago)

        await signed_in(0).approve(PAY, by="bea")
        await waits(app, desk)
        for service in (app.service, signed_in(3_600_000)):
            with pytest.raises(SignInNeeded):
                await says(service, word)
        record = r.Resolved(step="pay#1", word=word, by="bea", attempts=1, evidence=BANK)
        await app.service.sink.post(command_post("r-ann", written(Command("resolve", "bea", BANK, record))))
        await waits(app, desk)
        assert "signed in" in lab.of("r-ann", r.CommandApplied)[-1].refused
        await says(signed_in(0), word)
    assert len(lab.sent) == 1


@pytest.mark.parametrize("word", ORDERS)
@virtual
async def test_a_no_to_sending_again_leaves_it_unknown(lab: Lab, word: Orders):
    desk = paying(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        await app.service.resolve(PAY, word, by="bea", evidence=BANK)
        await waits(app, desk)
        await app.service.decline(PAY, by="cid", why="wait for Monday")
        await waits(app, desk)
        (item,) = await items(app.service.reader)
        assert item.kind == "review"
        assert "wait for Monday" in item.asks
        shown = (await load_item(app.service.reader, PAY)).digest
        await app.service.resolve(PAY, word, by="bea", evidence=BANK, shown=shown)
        await waits(app, desk)
        assert [one.kind for one in await items(app.service.reader)] == ["approval"]
    assert len(lab.sent) == 1


@virtual
async def test_no_answer_in_time_leaves_it_unknown(lab: Lab):
    desk = paying(lab, Gate("cents > 5000", within=timedelta(hours=1)))
    async with lab.app(desk) as app:
        await unknown(app, desk)
        await app.service.resolve(PAY, "retry", by="bea", evidence=BANK)
        await waits(app, desk)
        await lab.pass_time(hours=2)
        await waits(app, desk)
        assert [one.kind for one in await items(app.service.reader)] == ["review"]
    assert len(lab.sent) == 1


@virtual
async def test_a_standing_permission_counts_as_it_did_for_the_first(lab: Lab):
    desk = paying(lab, answers=2)
    allowed = StandingPermission("", "pay", "bea", EPOCH_MS + 90_000_000, "cents <= 10000", times=2)
    async with lab.app(desk) as app:
        await add_standing(app.engine, allowed)
        await waits(app, desk)
        assert len(lab.sent) == 1
        await app.service.resolve(PAY, "retry", by="bea", evidence=BANK)
        assert await app.run(desk, "ann") == "paid 9000"
        (listed,) = await list_standing(app.service.reader, EPOCH_MS)
    assert listed.spent.times == 2


@virtual
async def test_what_nobody_had_to_allow_is_sent_again_at_once(lab: Lab):
    desk = paying(lab, "cents > 10000", answers=2)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.resolve(PAY, "retry", by="ann")
        assert await app.run(desk, "ann") == "paid 9000"


@pytest.mark.parametrize("word", ["happened", "did_not_happen", *ORDERS])
@virtual
async def test_what_was_said_about_one_send_says_nothing_about_the_next(lab: Lab, word: Any):
    """It was given after the first send, and comes into the ledger after the second one."""
    desk = paying(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        await app.service.resolve(PAY, "retry", by="bea", evidence=BANK)
        await waits(app, desk)
        await app.service.approve(PAY, by="cid", shown=(await load_item(app.service.reader, PAY)).digest)
        await waits(app, desk)
        record = r.Resolved("pay#1", word, "dan", 1, BANK, r.Raw(b'"paid"') if word == "happened" else r.NOTHING)
        await app.service.sink.post(command_post("r-ann", written(Command("resolve", "dan", BANK, record))))
        await waits(app, desk)
        assert lab.of("r-ann", r.CommandApplied)[-1].refused == "pay#1 was sent again since"
        (item,) = await items(app.service.reader)
        assert item.kind == "review"
    assert len(lab.sent) == 2


@virtual
async def test_nobody_stands_in_for_a_call_that_a_restored_journal_may_have_forgotten(lab: Lab):
    desk = paying(lab, idempotency=None)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.approve(PAY, by="bea")
    lab.journal.identity = replace(lab.journal.identity, trust="doubtful", reason="an operator")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="before the journal was restored"):
            await app.run(desk, "ann")
        shown = (await load_item(app.service.reader, PAY)).digest
        await app.service.resolve(PAY, "retry", by="bea", evidence=BANK, shown=shown)
        await waits(app, desk)
        found = await dossier(app.service, PAY)
        assert found.fits == ("approve", "decline", "ask_back", "delegate", "snooze", "escalate"), "no page offers it"
        assert "--edit" not in str(found.answers)
        shown = found.digest
        for given in (a.StandIn("paid 9000"), a.Edit({"cents": 9001})):
            with pytest.raises(UsageError, match="may have been sent before"):
                await answer(app.service, PAY, given, by="cid", shown=shown)
    assert lab.sent == []


async def sent_twice(lab: Lab, app: Any, desk: Any) -> str:
    """It is sent again as a person ordered, and unknown again; the digest that the first order was given on."""
    await waits(app, desk)
    first = (await load_item(app.service.reader, PAY)).digest
    await app.service.resolve(PAY, "retry", by="ann")
    await waits(app, desk)
    assert len(lab.sent) == 2
    return first


ANSWERS: dict[str, a.Answer] = {
    "happened": a.HappenedAnswer(BANK, "paid"), "did_not_happen": a.DidNotHappenAnswer("give_up", BANK),
    "retry": a.DidNotHappenAnswer("retry"), "same_key": a.RetrySameKey(),
}  # fmt: skip


@pytest.mark.parametrize("word", ANSWERS)
@virtual
async def test_after_an_order_an_answer_says_what_was_shown(lab: Lab, word: str):
    """An order that is typed twice is a second one, on a send that its giver has seen nothing of."""
    desk = paying(lab, "cents > 10000")
    async with lab.app(desk) as app:
        first = await sent_twice(lab, app, desk)
        unseen = r"does not say what was shown(.|\n)*sent again(.|\n)*2 sends on record(.|\n)*--item r-ann/pay#1"
        with pytest.raises(UsageError, match=unseen):
            await says(app.service, word)
        for by in ("ann", "bea"):
            with pytest.raises(UsageError, match=unseen):
                await answer_idempotently(app.service, PAY, ANSWERS[word], by=by)
            with pytest.raises(UsageError, match="has changed since it was shown"):
                await answer_idempotently(app.service, PAY, ANSWERS[word], by=by, shown=first)
        await waits(app, desk)
        assert len(lab.sent) == 2
        shown = (await load_item(app.service.reader, PAY)).digest
        await answer_idempotently(app.service, PAY, ANSWERS[word], by="bea", shown=shown[:12])
        assert lab.of("r-ann", r.Resolved)[-1].word == word


@virtual
async def test_every_command_that_is_printed_then_says_what_was_shown(lab: Lab):
    desk = paying(lab, "cents > 10000")
    async with lab.app(desk) as app:
        await waits(app, desk)
        assert "--shown" not in str((await items(app.service.reader))[0].answers), "the first question names itself"
        await sent_twice(lab, app, desk)
        found = await dossier(app.service, PAY)
        (item,) = await items(app.service.reader)
        with pytest.raises(RunSuspended) as waiting:
            await app.run(desk, "ann")
        for commands in ("\n".join(found.answers), "\n".join(item.answers), str(waiting.value)):
            told = [line for line in commands.splitlines() if "beforehand resolve" in line]
            assert len(told) == 3
            assert all(f" --shown {found.digest[:12]} --by NAME" in line for line in told)
