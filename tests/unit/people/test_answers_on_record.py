"""Every answer of a person is on record in one way: with its author, how the name is known, and what came before it."""

from typing import Any, Final

import msgspec
import pytest

from beforehand import Key, Operation, Rejected, Run, agent, tool
from beforehand.control.command_sink import DirectSink
from beforehand.control.service import ControlService
from beforehand.errors import RunSuspended, UsageError
from beforehand.journal.port import LedgerEntry, Post
from beforehand.people import answers as a
from beforehand.people.answering import answer, answer_idempotently
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import REFUND, asked, refunds
from tests.unit.engine.test_contradicted import OPERATION, contradicted, paying
from tests.unit.people.test_answers import lost
from tests.unit.people.test_stopped_runs import desk_of, halted

PASSWORD_MS: Final = 1_700_000_000_000


async def approval(lab: Lab) -> tuple[Any, str]:
    desk = refunds(lab)
    async with lab.app(desk) as app:
        await asked(app, desk)
    return desk, REFUND


async def question(lab: Lab) -> tuple[Any, str]:
    @agent(run_id="trip-{name}")
    async def desk(run: Run, name: str) -> str:
        if name == "bob":
            return str(await run.hand_off("fraud", why="it is hard"))
        return await run.ask("Which city?", choices=("Paris", "Rome"))

    async with lab.app(desk) as app:
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
    return desk, "trip-ann/ask#1"


async def hand_off(lab: Lab) -> tuple[Any, str]:
    desk, _ = await question(lab)
    return desk, "trip-bob/hand_off#1"


async def stopped(lab: Lab) -> tuple[Any, str]:
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
    return desk, "trip-ann"


async def review(lab: Lab) -> tuple[Any, str]:
    desk = lost(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    return desk, "r-ann/pay#1"


async def contradiction(lab: Lab) -> tuple[Any, str]:
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
    return desk, OPERATION


async def transaction(lab: Lab) -> tuple[Any, str]:
    @tool(idempotency=Key.forever(stores="all"))
    async def book(seat: str) -> str:
        return seat

    @book.compensate(restores=True)
    @tool(idempotency=Key.forever(stores="all"))
    async def release(operation: Operation[str], seat: str) -> None:
        raise Rejected("the seat cannot be released")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> None:
        async with run.transaction("seats"):
            await book("A4")
            raise ValueError("sold out")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    return desk, "trip-ann/seats"


CASES: dict[str, tuple[Any, a.Answer, a.Answer]] = {
    "approval": (approval, a.Decline("no"), a.Decline("never")),
    "question": (question, a.ReplyAnswer("Rome"), a.ReplyAnswer("Paris")),
    "hand-off": (hand_off, a.TakeOver("mine"), a.TakeOver("no, mine")),
    "stopped run": (stopped, a.TakeOver("mine"), a.Abandon("enough")),
    "review": (review, a.DidNotHappenAnswer(), a.HappenedAnswer("I saw it", "paid")),
    "transaction": (transaction, a.Abandon("so be it"), a.DidNotHappenAnswer("retry")),
    "contradiction": (contradiction, a.HappenedAnswer("the statement"), a.DidNotHappenAnswer(evidence="no money")),
}


class Overtaken(DirectSink):
    """Another person answers just before the first entry of this one is in the ledger."""

    def __init__(self, app: Any, item: str, given: a.Answer) -> None:
        super().__init__(app.engine)
        self._other: Any = (app.service, item, given)

    async def post(self, *posts: Post) -> LedgerEntry:
        if (other := self._other) is not None:
            self._other = None
            await answer(*other, by="bea")
        return await super().post(*posts)


def said(lab: Lab, by: str) -> list[dict[str, Any]]:
    """The ledger entries in the name of a person."""
    bodies = [msgspec.json.decode(entry.body) for entry in lab.journal._ledger if entry.body.startswith(b"{")]
    return [body for body in bodies if body.get("by") == by]


@pytest.mark.parametrize("kind", CASES)
@virtual
async def test_an_answer_keeps_how_the_name_of_its_author_is_known(lab: Lab, kind: str):
    begin, given, _ = CASES[kind]
    desk, item = await begin(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        service = ControlService(app.engine, via="password", proven_ms=PASSWORD_MS)
        await answer(service, item, a.Delegate("cid"), by="ann")
        await answer(service, item, given, by="bea")
    for by in ("ann", "bea"):
        entries = said(lab, by)
        assert entries
        assert {(one["via"], one["proven_ms"]) for one in entries} == {("password", PASSWORD_MS)}


@pytest.mark.parametrize("kind", CASES)
@virtual
async def test_an_answer_that_comes_second_is_on_record_and_changes_nothing(lab: Lab, kind: str):
    begin, given, other = CASES[kind]
    desk, item = await begin(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        with pytest.raises(UsageError, match="bea"):
            await answer(ControlService(app.engine, Overtaken(app, item, given)), item, other, by="cid")
    assert said(lab, "bea")
    (late,) = said(lab, "cid")
    assert late.get("after", "bea") == "bea"


@pytest.mark.parametrize("kind", CASES)
@virtual
async def test_the_same_answer_of_the_same_person_is_accepted_again_and_no_other_is(lab: Lab, kind: str):
    begin, given, other = CASES[kind]
    desk, item = await begin(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await answer_idempotently(app.service, item, given, by="bea")
        assert (await answer_idempotently(app.service, item, given, by="bea")).at_once
        for late, by in ((other, "bea"), (given, "cid")):
            with pytest.raises(UsageError):
                await answer_idempotently(app.service, item, late, by=by)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (a.Approve("fine"), a.Approve("as I said")),
        (a.Edit({"cents": 7000}, "less"), a.Edit({"cents": 7000}, "less")),
        (a.StandIn("paid by hand"), a.StandIn("paid by hand")),
        (a.AskBack("why so much?"), a.AskBack("why so much?")),
    ],
)
@virtual
async def test_a_verdict_given_again_is_compared_with_what_is_on_record(lab: Lab, first: a.Answer, again: a.Answer):
    desk, item = await approval(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await answer_idempotently(app.service, item, first, by="bea")
        assert (await answer_idempotently(app.service, item, again, by="bea")).at_once
        for other in (a.Edit({"cents": 6000}, "less"), a.StandIn("paid twice"), a.Decline("why so much?")):
            with pytest.raises(UsageError):
                await answer_idempotently(app.service, item, other, by="bea")
