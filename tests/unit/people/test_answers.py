"""People decide: one function for every answer, and a dossier that says what there is to know."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import Rejected, Run, agent, tool
from beforehand.errors import Ambiguous, RunSuspended, UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import Posts
from beforehand.model import records as r
from beforehand.people import answering, earlier_answers
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer, answer_all
from beforehand.people.dossier import dossier
from beforehand.people.items import ItemFilter, items
from beforehand.people.loaded_item import LoadedItem, load_item
from beforehand.people.typed_answers import Typed, answer_from_words
from beforehand.policies import Gate
from beforehand.testing.clock import EPOCH_MS
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import REFUND, refunds


async def begun(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")


@virtual
async def test_every_verdict_goes_through_one_function(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        await begun(app, desk)
        shown = (await dossier(app.service, REFUND)).digest
        await answer(app.service, REFUND, a.Approve(why="fine"), by="bea", shown=shown)
        assert await app.run(desk, "ann") == "paid 9000"
    assert lab.sent == ["refund 9000"]


@virtual
async def test_an_answer_to_what_has_changed_since_is_refused(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        await begun(app, desk)
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, REFUND, a.Approve(), by="bea", shown="0" * 32)
        with pytest.raises(UsageError, match="an answer needs the name of a person"):
            await answer(app.service, REFUND, a.Approve(), by="")
        with pytest.raises(UsageError, match=r"it takes: approve, edit, decline, stand_in, ask_back"):
            await answer(app.service, REFUND, a.HappenedAnswer(), by="bea")
    assert lab.sent == []


@virtual
async def test_who_asks_back_is_answered_with_another_proposal_that_shows_the_exchange(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        await begun(app, desk)
        with pytest.raises(UsageError, match="the question is empty"):
            await answer(app.service, REFUND, a.AskBack(" "), by="bea")
        await answer(app.service, REFUND, a.AskBack("Why so much?"), by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        found = await dossier(app.service.reader, "r-ann/refund#2")
        (change,) = found.changes
        assert (change.name, bytes(change.before), bytes(change.now)) == ("cents", b"9000", b"6000")
        (before,) = found.earlier
        assert (before.step, before.by, before.word, before.text) == (
            "refund#1", "bea", "asked_back", "asks back: Why so much?",
        )  # fmt: skip
        assert found.similar.asked_back == 1
        assert found.why == "the contract asks for a person: cents > 5000"
        assert (found.due_ms, found.default) == (EPOCH_MS + 7 * 24 * 3_600_000, "it is refused, and nothing is sent")
        await answer(app.service, "r-ann/refund#2", a.Approve(), by="bea")
        assert await app.run(desk, "ann") == "paid 6000"
    assert lab.sent == ["refund 6000"]


@virtual
async def test_items_are_given_away_rest_and_become_urgent_without_touching_the_run(lab: Lab):
    desk = refunds(lab, gate=Gate("true", within=timedelta(days=1)))
    async with lab.app(desk) as app:
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
        before = len(lab.records("r-ann"))
        await answer(app.service, REFUND, a.Delegate(to="cid", why="yours"), by="bea")
        await answer(app.service, "r-bob/refund#1", a.Delegate(queue="money"), by="bea")
        await answer(app.service, REFUND, a.Snooze(until_ms=EPOCH_MS + 3_600_000), by="cid")
        reader = app.service.reader
        assert [one.item for one in await items(reader, now_ms=EPOCH_MS)] == ["r-bob/refund#1", REFUND]
        assert [one.item for one in await items(reader, now_ms=EPOCH_MS + 3_600_000)] == [REFUND, "r-bob/refund#1"]
        (mine,) = await items(reader, ItemFilter(mine="cid"), now_ms=EPOCH_MS)
        assert (mine.item, mine.to, mine.rests_ms) == (REFUND, "cid", EPOCH_MS + 3_600_000)
        (queued,) = await items(reader, ItemFilter(queue="money"))
        assert queued.item == "r-bob/refund#1"
        await answer(app.service, REFUND, a.Escalate(queue="leads", why="now"), by="cid")
        first = (await items(reader))[0]
        assert (first.item, first.queue, first.to, first.rests_ms, first.escalated) == (REFUND, "leads", "", 0, 1)
        assert (await dossier(reader, REFUND)).handed.said == (
            "bea delegated it to cid: yours", "cid snoozed it", "cid escalated it to the queue leads: now",
        )  # fmt: skip
        with pytest.raises(UsageError, match="no recipient is named"):
            await answer(app.service, REFUND, a.Delegate(), by="bea")
        with pytest.raises(UsageError, match="the snooze time is in the past"):
            await answer(app.service, REFUND, a.Snooze(until_ms=EPOCH_MS), by="bea")
        assert len(lab.records("r-ann")) == before
        await answer(app.service, REFUND, a.Decline("no"), by="bea")
        with pytest.raises(UsageError, match="is already answered"):
            await answer(app.service, REFUND, a.Escalate(), by="bea")


@virtual
async def test_similar_cases_are_the_newest_ones(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(earlier_answers, "RUNS", 2)
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        for name, word in (("ann", a.Approve()), ("zoe", a.Decline("no"))):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
            await answer(app.service, f"r-{name}/refund#1", word, by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, "mia")
        similar = (await dossier(app.service, "r-mia/refund#1")).similar
    assert (similar.approved, similar.declined, similar.runs) == (0, 1, 2)


def lost(lab: Lab, **clauses: Any) -> Any:
    """An agent whose call ends without an answer, the first time."""

    @tool(**clauses)
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        if len(lab.sent) == 1:
            raise Ambiguous("the line was cut")
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(7)

    return desk


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (a.HappenedAnswer("the ledger has it", r.Raw(b'"paid"')), "paid"),
        (a.DidNotHappenAnswer("retry", "nothing there"), "paid"),
    ],
    ids=["it happened", "it did not, and is sent again"],
)
@virtual
async def test_reviews_are_answered(lab: Lab, given: Any, told: str):
    desk = lost(lab)
    async with lab.app(desk) as app:
        await begun(app, desk)
        found = await dossier(app.service, "r-ann/pay#1")
        assert (found.kind, found.open, found.recommended) == ("review", True, "")
        assert any("the line was cut" in line for line in found.evidence)
        await answer(app.service, "r-ann/pay#1", given, by="bea", shown=found.digest)
        assert await app.run(desk, "ann") == told


@virtual
async def test_without_a_key_nothing_is_sent_again_under_one(lab: Lab):
    desk = lost(lab)
    async with lab.app(desk) as app:
        await begun(app, desk)
        with pytest.raises(UsageError, match="its tool has no key"):
            await answer(app.service, "r-ann/pay#1", a.RetrySameKey(), by="bea")
        with pytest.raises(UsageError, match="is in no transaction"):
            await answer(app.service, "r-ann/pay#1", a.CompensateAnswer(), by="bea")
        await answer(app.service, "r-ann/pay#1", a.Abandon("nobody can tell"), by="bea")
        assert not await items(app.service.reader)
    assert lab.sent == ["pay 7"]


@virtual
async def test_a_question_is_replied_to_and_its_dossier_says_what_counts(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.ask("Which city?", choices=("Paris", "Rome"), timeout=timedelta(hours=1), default="Rome")

    async with lab.app(desk) as app:
        await begun(app, desk)
        found = await dossier(app.service, "r-ann/ask#1")
        assert (found.kind, found.choices, found.default) == ("question", ("Paris", "Rome"), "the answer is Rome")
        assert found.recommended.startswith("Rome")
        with pytest.raises(UsageError, match="one of: Paris, Rome"):
            await answer(app.service, "r-ann/ask#1", a.ReplyAnswer("Oslo"), by="bea")
        await answer(app.service, "r-ann/ask#1", a.ReplyAnswer("Paris"), by="bea", shown=found.digest)
        assert await app.run(desk, "ann") == "Paris"
        assert not (await load_item(app.service.reader, "r-ann/ask#1")).open


def test_an_answer_is_one_tagged_value_on_the_wire():
    for one in (a.Approve("ok"), a.ReplyAnswer(True), a.DidNotHappenAnswer("retry"), a.Snooze(5), a.CompensateAnswer()):
        assert msgspec.json.decode(msgspec.json.encode(one), type=a.Answer) == one


@virtual
async def test_a_transaction_that_cannot_end_is_reviewed(lab: Lab):
    @tool
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        return city

    @book.compensate(restores=True)
    async def cancel(op: Any) -> None:
        if len(lab.sent) < 3:
            lab.sent.append("cancel fails")
            raise Rejected("closed")
        lab.sent.append("cancelled")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book("Rome")
            raise Rejected("no seat")

    async with lab.app(desk) as app:
        await begun(app, desk)
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item) == ("review", "r-ann/trip")
        found = await dossier(app.service, item.item)
        assert found.kind == "review"
        assert "still standing: trip/book#1" in found.evidence
        with pytest.raises(UsageError, match="compensate, retry or abandon"):
            await answer(app.service, item.item, a.HappenedAnswer(), by="bea")
        await answer(app.service, item.item, a.Delegate(to="cid"), by="bea")
        assert [one.to for one in await items(app.service.reader)] == ["cid"]
        await answer(app.service, item.item, a.RetrySameKey(), by="bea", shown=found.digest)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        shown = (await dossier(app.service, item.item)).digest
        await answer(app.service, item.item, a.Abandon("let it stand"), by="bea", shown=shown)
        with pytest.raises(Exception, match="called off"):
            await app.run(desk, "ann")


@pytest.mark.parametrize("several", [False, True], ids=["alone", "among several"])
@virtual
async def test_amends_are_ordered_with_what_happened_or_not_at_all(lab: Lab, several: bool):
    """Two words, one commit: a result that does not fit must not leave its transaction called off."""

    @tool
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        raise TimeoutError("no answer")

    @book.compensate(restores=True)
    async def cancel(op: Any) -> None:
        lab.sent.append("cancelled")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            return await book("Rome")

    async with lab.app(desk) as app:

        async def answered(result: Any) -> None:
            given = a.CompensateAnswer(result=result)
            if several:
                await answer_all(app.service, [OneOf("r-ann/trip/book#1", given)], by="bea")
            else:
                await answer(app.service, "r-ann/trip/book#1", given, by="bea")

        await begun(app, desk)
        with pytest.raises(UsageError):
            await answered(7)
        assert (await app.service.history("r-ann")).boundaries.by_name["trip"].phase == "open"
        await answered("Rome")
        with pytest.raises(Exception, match="is compensated"):
            await app.run(desk, "ann")
    assert lab.sent == ["book Rome", "cancelled"]


# --- several at once -----------------------------------------------------------------------------------


async def three(app: Any, desk: Any) -> list[str]:
    for name in ("ann", "bob", "cid"):
        with pytest.raises(RunSuspended):
            await app.run(desk, name)
    return [f"r-{name}/refund#1" for name in ("ann", "bob", "cid")]


@virtual
async def test_several_are_answered_in_one_commit(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        names = await three(app, desk)
        shown = [(await dossier(app.service, name)).digest for name in names]
        done = await answer_all(
            app.service, [OneOf(name, a.Approve(), digest) for name, digest in zip(names, shown, strict=True)], by="bea"
        )
        assert [one.at_once for one in done] == [True, True, True]
        assert not await items(app.service.reader)
        for name in ("ann", "bob", "cid"):
            assert await app.run(desk, name) == "paid 9000"


@virtual
async def test_one_that_does_not_fit_or_was_answered_takes_all_back(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        names = await three(app, desk)
        words = [OneOf(name, a.Approve()) for name in names]
        for misfit, says in (
            (OneOf(names[0], a.Approve()), "is answered twice"),
            (OneOf("r-bob/refund#1", a.HappenedAnswer()), "is answered twice"),
            (OneOf("r-ann/refund#9", a.Approve()), "the inbox has no item"),
        ):
            with pytest.raises(UsageError, match=says):
                await answer_all(app.service, [*words, misfit], by="bea")
        with pytest.raises(UsageError, match=r"r-cid/refund#1: .*does not take this answer"):
            await answer_all(app.service, [*words[:2], OneOf(names[2], a.ReplyAnswer("x"))], by="bea")
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer_all(app.service, [*words[:2], OneOf(names[2], a.Approve(), "0" * 32)], by="bea")
        assert len(await items(app.service.reader)) == 3
        before = await app.engine.journal.entries("run/")
        assert before == []


@virtual
async def test_whoever_answers_one_of_them_meanwhile_is_first_and_none_of_the_others_is_taken(lab: Lab):
    """Two people over two processes: one word is in the ledger before the batch is, and the batch is refused whole."""
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app, lab.app(desk) as other:
        names = await three(app, desk)

        async def after_a_click(posts: Posts, commit: Commit) -> Any:
            await other.service.decline(names[1], by="cid", why="no")
            return await commit(posts)

        intercept(lab.processes[0], Posts, after_a_click)  # the other click falls just before the batch
        with pytest.raises(UsageError, match="cid answered one of them meanwhile"):
            await answer_all(app.service, [OneOf(name, a.Approve()) for name in names], by="bea")
        assert {one.item for one in await items(app.service.reader)} == {names[0], names[2]}
    assert lab.sent == []


@virtual
async def test_a_yes_is_to_what_was_shown_also_where_it_changes_between_two_looks(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """The digest is compared with the state that the word is bound to, not with an earlier look at it."""
    desk = refunds(lab, gate=Gate("true", people=2))
    async with lab.app(desk) as app:
        await begun(app, desk)
        shown = (await dossier(app.service, REFUND)).digest

        async def overtaken(reader: JournalReader, item: str) -> LoadedItem:
            found = await load_item(reader, item)
            monkeypatch.undo()
            await answer(app.service, item, a.Edit({"cents": 8000}), by="cid")
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
            return found

        monkeypatch.setattr(answering, "load_item", overtaken)
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, REFUND, a.Approve(), by="bea", shown=shown)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == []


@pytest.mark.parametrize(
    ("first", "known"),
    [(a.Approve(), "bea approved it"), (a.Decline("no"), "bea decided it"), (a.StandIn("paid"), "bea decided it")],
)
@virtual
async def test_a_second_answer_is_told_who_gave_the_first(lab: Lab, first: a.Answer, known: str):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        await begun(app, desk)
        shown = (await dossier(app.service, REFUND)).digest
        await answer(app.service, REFUND, first, by="bea", shown=shown)
        found = await dossier(app.service, REFUND)
        assert found.decided is not None
        assert (found.open, found.decided.by, found.fits, found.words) == (False, "bea", (), ())
        with pytest.raises(UsageError, match="waits for no approval") as refused:
            await answer(app.service, REFUND, a.Approve(), by="cid")
        assert refused.value.known == known


@virtual
async def test_a_word_that_comes_while_the_call_is_being_sent_is_told_who_approved_it(lab: Lab):
    desk = refunds(lab, instead=6000)
    async with lab.app(desk) as app:
        await begun(app, desk)
        await answer(app.service, REFUND, a.Approve(), by="bea")
        assert await app.run(desk, "ann") == "paid 9000"
        now = await load_item(app.service.reader, REFUND)
        assert not now.open
        with pytest.raises(UsageError, match="takes no answer now") as refused:
            answer_from_words(now, Typed("yes please"))
        assert refused.value.known == "bea approved it"
