"""A person approves a call with other arguments: it stays the same operation, and code goes on as it called."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import Key, Once, Pending, Run, Secret, agent, current_operation, tool
from beforehand.control.service import ControlService
from beforehand.errors import ArgumentError, Declined, ReplayDiverged, RunSuspended, UsageError
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer, answer_all
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.policies import Gate
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual

REFUND = "r-ann/refund#1"
HOUR = timedelta(hours=1)


def desk_of(lab: Lab, *, gate: Any = "cents > 5000", **clauses: Any) -> Any:
    @tool(gate=gate, idempotency=Key.forever(), **clauses)
    async def refund(customer: str, cents: int) -> str:
        lab.sent.append(f"refund {cents} to {customer} {current_operation().key[-4:]}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        try:
            outcome = await refund.outcome("ann", 9000)
            return f"{outcome.result}, sent: {outcome.arguments['cents']}"
        except Declined as no:
            return f"{no.code}: {no.message}"

    return desk


async def asked(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")


async def digest(app: Any, item: str = REFUND) -> str:
    """What is shown now."""
    return (await dossier(app.service, item)).digest


async def agreed(app: Any, desk: Any, item: str = REFUND, by: str = "eve") -> None:
    """Another person approves what was edited."""
    await asked(app, desk)
    await answer(app.service, item, a.Approve(), by=by, shown=await digest(app, item))


@virtual
async def test_what_the_person_wrote_is_sent_and_replay_still_calls_with_what_code_wrote(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await answer(app.service, REFUND, a.Edit({"cents": 7000}, why="not more"), by="bea")
        await agreed(app, desk)
        assert await app.run(desk, "ann") == "paid 7000, sent: 7000"
    assert len(lab.sent) == 1
    assert lab.sent[0].startswith("refund 7000 to ann")
    (edited,) = lab.of("r-ann", r.ArgumentsEdited)
    first, second = lab.of("r-ann", r.OperationParked)
    (granted,) = lab.of("r-ann", r.ApprovalGranted)
    assert (edited.approval, granted.approval, granted.by) == (first.asks, second.asks, "eve")
    assert first.asks != second.asks, "what is sent has a digest of its own"
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid 7000, sent: 7000"


@virtual
async def test_a_replay_before_the_end_compares_with_what_code_called(lab: Lab):
    """The run goes on in another process, before what was edited is sent: code comes back with its own arguments."""
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.pause_tool("refund", by="ops")
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert (await dossier(app.service, REFUND)).changes[0].name == "cents"
        await app.service.approve(REFUND, by="eve", shown=await digest(app))
        await app.service.unpause_tool("refund", by="ops")
        assert await app.run(desk, "ann") == "paid 7000, sent: 7000"


@virtual
async def test_code_that_now_calls_with_what_was_sent_has_diverged_all_the_same(lab: Lab):
    """The person's arguments are no excuse for other code: it called with something else, and says so."""

    def desk_with(cents: int) -> Any:
        @tool(gate="true", idempotency=Key.forever())
        async def refund(cents: int) -> str:
            lab.sent.append(f"refund {cents}")
            return "paid"

        @agent(run_id="r-{name}", tools=[refund])
        async def desk(run: Run, name: str) -> str:
            await refund(cents)
            return await run.ask("Done?")

        return desk

    async with lab.app(desk_with(9000)) as app:
        await asked(app, app.agents["desk"])
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        await agreed(app, app.agents["desk"])
        await asked(app, app.agents["desk"])
    changed = desk_with(7000)
    async with lab.app(changed) as app:
        with pytest.raises(ReplayDiverged) as diverged:
            await app.run(changed, "ann")
        assert '- recorded: refund {"cents":9000}' in diverged.value.difference
    assert lab.sent == ["refund 7000"]


@virtual
async def test_how_a_name_is_known_is_kept_with_every_word(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        page = ControlService(app.engine, via="session")
        await answer_all(page, [OneOf(REFUND, a.Edit({"cents": 7000}))], by="bea")
        (entry,) = await app.engine.journal.entries(command_stream("r-ann"))
        said = msgspec.json.decode(entry.body, type=Command)
        assert (said.word, said.by, said.via) == ("edit", "bea", "session")


@virtual
async def test_two_people_have_to_agree_on_the_same_arguments(lab: Lab):
    desk = desk_of(lab, gate=Gate("cents > 5000", people=2))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="cid")
        await answer(app.service, REFUND, a.Edit({"cents": 8000}), by="bea")
        await asked(app, desk)
        (item,) = await items(app.service.reader)
        assert "cents=8000" in item.asks
        assert "(2 people)" in item.asks, "who edited has not approved, and a yes to the first arguments is void"
        await answer(app.service, REFUND, a.Approve(), by="cid", shown=await digest(app))
        await asked(app, desk)
        await agreed(app, desk)
        assert await app.run(desk, "ann") == "paid 8000, sent: 8000"


@virtual
async def test_a_contract_that_changed_after_the_edit_is_asked_about_again(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        await agreed(app, desk)
    changed = desk_of(lab, timeout=timedelta(seconds=7))
    async with lab.app(changed) as app:
        await asked(app, changed)
        assert lab.sent == []
        await agreed(app, changed)
        assert await app.run(changed, "ann") == "paid 7000, sent: 7000"


@virtual
async def test_an_approval_of_an_edit_that_was_not_used_in_time_is_asked_about_again(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
        await app.service.pause_tool("refund", by="ops")
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        await asked(app, desk)
        await answer(app.service, REFUND, a.Approve(hours=2), by="eve", shown=await digest(app))
        await asked(app, desk)
        await lab.pass_time(hours=2)
        await app.service.unpause_tool("refund", by="ops")
        await asked(app, desk)
        assert lab.sent == []


@pytest.mark.parametrize("given", [a.Edit({"cents": 7000}), a.StandIn("cash"), a.Approve(), a.Decline()])
@virtual
async def test_the_end_of_the_time_may_fall_into_the_click(lab: Lab, given: Any):
    """What counts is when the word is in the ledger: its author learns at once that it counts for nothing."""
    desk = desk_of(lab, gate=Gate("cents > 5000", within=HOUR))
    async with lab.app(desk) as app:
        await asked(app, desk)

        async def an_hour_later(word: Post, commit: Commit) -> Any:
            await lab.pass_time(hours=1)
            return await commit(word)

        intercept(lab.processes[-1], Post, an_hour_later)
        with pytest.raises(UsageError, match="the time to answer r-ann/refund#1 was over"):
            await answer(app.service, REFUND, given, by="bea")
        assert await app.run(desk, "ann") == "expired: no yes or no came in time"
    assert lab.sent == []
    (order,) = lab.of("r-ann", r.CommandApplied)
    assert order.refused == "the time to answer refund#1 was over"


@virtual
async def test_several_are_refused_where_the_time_of_one_is_over(lab: Lab):
    desk = desk_of(lab, gate=Gate("cents > 5000", within=HOUR))
    async with lab.app(desk) as app:
        await asked(app, desk)
        await lab.pass_time(hours=1)
        with pytest.raises(UsageError, match="the time to answer"):
            await answer_all(app.service, [OneOf(REFUND, a.Approve())], by="bea")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cents": "7000"}, "Expected `int`, got `str`"),
        ({"euros": 70}, "there is no such parameter"),
        ({"cents": 9000}, "nothing is different"),
        ({"customer": "bob"}, "customer: that would be another effect"),
        ({"cents": {"$secret": "api"}}, "Expected `int`"),
    ],
)
@virtual
async def test_what_does_not_fit_is_refused_at_once(lab: Lab, changes: dict[str, Any], says: str):
    desk = desk_of(lab, claim="customer")
    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match=says):
            await answer(app.service, REFUND, a.Edit(changes), by="bea")
        assert len(await items(app.service.reader)) == 1
    assert lab.sent == []


@virtual
async def test_the_words_that_make_a_repeat_are_kept(lab: Lab):
    desk = desk_of(lab, once=Once("customer"))
    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="customer: that would be another effect"):
            await answer(app.service, REFUND, a.Edit({"customer": "bob"}), by="bea")
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        await agreed(app, desk)
        assert await app.run(desk, "ann") == "paid 7000, sent: 7000"


@virtual
async def test_what_is_not_stored_is_not_edited_blindly(lab: Lab):
    @tool(gate="true", redact=["card"])
    async def charge(card: str, cents: int) -> str:
        lab.sent.append(f"{card} {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        return await charge("4242", 5)

    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="some of its arguments are not stored"):
            await answer(app.service, "r-ann/charge#1", a.Edit({"cents": 6}), by="bea")
        assert (
            "some of its arguments are not stored, and cannot be shown"
            in (await dossier(app.service, "r-ann/charge#1")).risks
        )


@virtual
async def test_a_named_secret_stays_and_cannot_be_chosen(lab: Lab):
    @tool(gate="cents > 1")
    async def charge(cents: int, card: Secret = Secret("visa")) -> str:  # noqa: B008 - a name, and frozen
        lab.sent.append(f"{card.name} {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        return await charge(5)

    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(ArgumentError, match="no such parameter"):
            await answer(app.service, "r-ann/charge#1", a.Edit({"card": {"$secret": "admin"}}), by="bea")
        await answer(app.service, "r-ann/charge#1", a.Edit({"cents": 4}), by="bea")
        await agreed(app, desk, "r-ann/charge#1")
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == ["visa 4"]


@virtual
async def test_an_edit_waits_for_the_code_of_its_tool_and_what_does_not_fit_there_is_refused(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
    async with lab.app() as clerk:
        applied = await answer(clerk.service, REFUND, a.Edit({"cents": "many"}), by="bea")
        assert applied.lacks == "refund"
    async with lab.app(desk) as app:
        await asked(app, desk)
    assert [one.refused for one in lab.of("r-ann", r.CommandApplied) if one.refused]
    async with lab.app() as clerk:
        applied = await answer(clerk.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        assert applied.lacks == "refund"
        with pytest.raises(UsageError, match="was already answered by"):
            await clerk.service.approve(REFUND, by="cid")
    async with lab.app(desk) as app:
        await agreed(app, desk)
        assert await app.run(desk, "ann") == "paid 7000, sent: 7000"
    assert "bea answered first" in [one.refused for one in lab.of("r-ann", r.CommandApplied)]


@dataclass
class Trip:
    city: str
    nights: int


@virtual
async def test_values_of_a_class_are_edited_as_what_they_are(lab: Lab):
    @tool(gate="true")
    async def book(trip: Trip) -> str:
        lab.sent.append(f"{trip.nights} nights in {trip.city}")
        return "booked"

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        return await book(Trip("Rome", 3))

    async with lab.app(desk) as app:
        await asked(app, desk)
        with pytest.raises(UsageError, match="nights"):
            await answer(app.service, "r-ann/book#1", a.Edit({"trip": {"city": "Rome"}}), by="bea")
        await answer(app.service, "r-ann/book#1", a.Edit({"trip": {"city": "Rome", "nights": 2}}), by="bea")
        await agreed(app, desk, "r-ann/book#1")
        assert await app.run(desk, "ann") == "booked"
    assert lab.sent == ["2 nights in Rome"]


@virtual
async def test_a_model_hears_what_was_sent_in_place_of_what_it_chose(lab: Lab):
    desk_tool = desk_of(lab).tools[0]

    @agent(run_id="r-{name}", tools=[desk_tool])
    async def desk(run: Run, name: str) -> str:
        return (await run.call("refund", {"customer": "ann", "cents": 9000})).as_text()

    async with lab.app(desk) as app:
        await asked(app, desk)
        await answer(app.service, REFUND, a.Edit({"cents": 7000}), by="bea")
        await agreed(app, desk)
        assert await app.run(desk, "ann") == (
            'paid 7000\nA person changed the call before it was sent. These were sent: {"customer":"ann","cents":7000}.'
        )


@virtual
async def test_what_is_pending_is_about_what_the_person_wrote(lab: Lab):
    """While the edited call to ben is under way, another one to ben is not sent, and one to ann is."""

    @tool(gate="first", pending=Pending("an answer", about="lead", within=HOUR))
    async def follow_up(lead: str, first: bool = False) -> str:
        lab.sent.append(lead)
        await asyncio.sleep(5)
        return "sent"

    @agent(run_id="r-{name}", tools=[follow_up])
    async def desk(run: Run, name: str) -> str:
        return (await follow_up.outcome("ann" if name == "first" else name, first=name == "first")).status

    item = "r-first/follow_up#1"
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "first")
        await answer(app.service, item, a.Edit({"lead": "ben"}), by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, "first")
        await answer(app.service, item, a.Approve(), by="eve", shown=await digest(app, item))
        await asyncio.gather(*(app.run(desk, name) for name in ("first", "ben", "ann")), return_exceptions=True)
    assert sorted(lab.sent) == ["ann", "ben"]
