"""Contradicted outcomes: the outcome stays, and a review is open until a person answers, whatever dies meanwhile."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import (
    Ambiguous,
    CannotTell,
    Conflict,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred, RunStopped, RunSuspended, UsageError
from beforehand.journal.cells import read_hint
from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from tests.unit.engine.lab import Lab, virtual

OPERATION = "p-ann/pay#1"


def result(value: object) -> r.Raw:
    return r.Raw(msgspec.json.encode(value))


def paying(lab: Lab, *, compensates: bool = True) -> Any:
    """An agent that pays, and sends a letter that relies on the payment."""

    @tool(idempotency=Key.forever(), claim="name")
    async def pay(name: str) -> str:
        lab.sent.append(f"pay {name} {current_operation().key}")
        raise Deferred("accepted by the bank", key=f"P-{name}")

    @tool(idempotency=Key.forever())
    async def write(name: str) -> str:
        lab.sent.append(f"write {name} {current_operation().key}")
        return "written"

    if compensates:

        @pay.compensate
        async def take_back(operation: Operation[str], name: str) -> None:
            lab.sent.append(f"take back {name}")

    @agent(run_id="p-{name}", tools=[pay, write])
    async def desk(run: Run, name: str) -> str:
        paid = await pay.outcome(name)
        if paid.status == "succeeded":
            await write(name)
        return paid.status

    @agent(run_id="again-{name}", tools=[pay, write])
    async def again(run: Run, name: str) -> str:
        return (await pay.outcome(name)).reused

    return desk, again


async def contradicted(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")
    await app.service.deliver("P-ann", ArrivedAnswer("m1", result=result("R-1")))
    assert await app.run(desk, "ann") == "succeeded"
    await app.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="bounced"))


@virtual
async def test_an_answer_that_is_contradicted_while_code_receives_it_is_an_item(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """The second command was read while the operation was open, and is recorded once code has its outcome."""
    received, ends, attempt_checked = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()

    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        raise Deferred("accepted by the bank", key=f"P-{name}")

    @tool(effect="read", timeout=timedelta(hours=1))
    async def work() -> None:
        await ends.wait()

    @agent(run_id="p-{name}", tools=[pay, work])
    async def desk(run: Run, name: str) -> str:
        async def paid() -> str:
            outcome = await pay.outcome(name)
            received.set()
            return outcome.status

        return (await run.gather(paid(), work()))[0]

    async with lab.app(desk, poll_ms=1000) as app, lab.app(poll_ms=1000) as clerk, asyncio.timeout(600):
        driven = asyncio.create_task(app.run(desk, "ann"))
        await asyncio.sleep(1)
        active = app.engine.active_runs["p-ann"]
        settled = active.waiters.settled

        def hold_commands_back(step: str) -> None:
            if not attempt_checked.done():
                active.log.checking[attempt_checked] = set()
            settled(step)

        monkeypatch.setattr(active.waiters, "settled", hold_commands_back)
        await clerk.service.deliver("P-ann", ArrivedAnswer("m1", result=result("R-1")))
        await clerk.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="bounced"))
        await received.wait()
        active.log.checking.pop(attempt_checked, None)
        attempt_checked.set_result(None)
        await asyncio.sleep(1)
        found = await items(app.service.reader)
        assert [(item.kind, item.item) for item in found] == [("review", "p-ann/~1/pay#1")]
        ends.set()
        assert await driven == "succeeded"


@virtual
async def test_a_contradicted_success_of_a_run_that_has_ended_is_an_item(lab: Lab):
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        assert (await app.service.row("p-ann")).status == "completed"
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item, item.tool, item.agent) == ("review", OPERATION, "pay", "desk")
        assert "bounced" in item.asks
        assert "recorded as succeeded" in item.asks
        assert item.answers[-1] == f"beforehand resolve {OPERATION} --compensate --evidence TEXT --by NAME"
        about = await dossier(app.service, OPERATION)
        assert about.open
        assert about.contradicted == ("attempt 1 reported late: rejected bounced",)
        assert about.relied == ("write#1 (succeeded) began after it", "run p-ann completed with its result")
        _, operation = await app.service.operation(OPERATION)
        assert operation.phase == "succeeded"


@pytest.mark.parametrize(
    ("first", "then", "phase", "says"),
    [
        (
            ArrivedAnswer("m1", result=result("R-1")),
            ArrivedAnswer("m2", "failed", why="bounced"),
            "succeeded",
            "rejected bounced",
        ),
        (
            ArrivedAnswer("m1", "failed", why="no money"),
            ArrivedAnswer("m2", result=result("R-1")),
            "failed",
            "returned",
        ),
    ],
    ids=["bounced", "paid after all"],
)
@virtual
async def test_two_answers_before_there_is_an_outcome_are_a_contradiction(
    lab: Lab, first: ArrivedAnswer, then: ArrivedAnswer, phase: str, says: str
):
    """Both are on record before the run goes on: the first one counts, and a person is asked about the second."""
    desk, _ = paying(lab)
    await lab.until_suspended(desk, "ann")
    async with lab.app() as clerk:
        await clerk.service.deliver("P-ann", first)
        await clerk.service.deliver("P-ann", then)
        await clerk.service.deliver("P-ann", then)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == phase
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item) == ("review", OPERATION)
        assert f"recorded as {phase}" in item.asks
        about = await dossier(app.service, OPERATION)
        assert [one.partition("late: ")[2].startswith(says) for one in about.contradicted] == [True]
        assert (await app.service.row("p-ann")).status == "completed"
        _, operation = await app.service.operation(OPERATION)
        assert operation.phase == phase
        await answer(app.service, OPERATION, a.HappenedAnswer(), by="bea")
        assert await items(app.service.reader) == []


@virtual
async def test_news_that_its_driver_did_not_look_at_before_the_run_ended_opens_a_review(lab: Lab):
    """A worker beside the driver finds the run driven, and looks at it again after its end."""

    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        raise Deferred("accepted by the bank", key=f"P-{current_operation().key and name}")

    @tool
    async def write(name: str) -> None:
        await asyncio.sleep(50)

    @agent(run_id="p-{name}", tools=[pay, write])
    async def desk(run: Run, name: str) -> None:
        await pay(name)
        await write(name)

    async with lab.app(desk, poll_ms=3_600_000) as app, lab.app(desk, recover=True) as worker:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await worker.service.deliver("P-ann", ArrivedAnswer("m1", result=result("R-1")))
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=30)
        await worker.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="bounced"))
        await lab.pass_time(seconds=20)
        assert await items(worker.service.reader) == []
        await running
        await lab.pass_time(minutes=1)
        assert [one.item for one in await items(worker.service.reader)] == [OPERATION]
        mark = await read_hint(lab.journal, "cursor/deliveries")
        assert mark is not None
        assert not await lab.journal.entries("deliveries", int(mark)), "no worker looks at them again"


@virtual
async def test_a_run_that_reused_the_outcome_relied_on_it(lab: Lab):
    desk, again = paying(lab)
    async with lab.app(desk, again) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.deliver("P-ann", ArrivedAnswer("m1", result=result("R-1")))
        await app.run(desk, "ann")
        assert await app.run(again, "ann") == OPERATION
        await app.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="bounced"))
        about = await dossier(app.service, OPERATION)
    assert "again-ann/pay#1 reused its outcome" in about.relied


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (a.HappenedAnswer("the statement"), "it happened"),
        (a.DidNotHappenAnswer(evidence="no money"), "it did not happen"),
    ],
)
@virtual
async def test_an_answer_is_on_record_and_closes_the_review(lab: Lab, given: Any, says: str):
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        shown = (await dossier(app.service, OPERATION)).digest
        await answer(app.service, OPERATION, given, by="bea", shown=shown)
        assert await items(app.service.reader) == []
        assert not (await dossier(app.service, OPERATION)).open
        with pytest.raises(UsageError, match="already answered by bea"):
            await answer(app.service, OPERATION, a.HappenedAnswer(), by="cid")
        _, operation = await app.service.operation(OPERATION)
        assert operation.phase == "succeeded"
        assert (await app.service.row("p-ann")).status == "completed"
    (word,) = [one for one in lab.of("p-ann", r.CommandApplied) if one.command == "review"]
    assert (word.by, word.note.startswith(f"pay#1: {says}")) == ("bea", True)


@virtual
async def test_new_evidence_after_an_answer_opens_it_again(lab: Lab):
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        await answer(app.service, OPERATION, a.HappenedAnswer(), by="bea")
        await app.service.deliver("P-ann", ArrivedAnswer("m3", "failed", why="bounced again"))
        (item,) = await items(app.service.reader)
        assert "bounced again" in item.asks
        await answer(app.service, OPERATION, a.DidNotHappenAnswer(), by="cid")
        assert await items(app.service.reader) == []


@virtual
async def test_an_answer_to_what_was_shown_before_new_evidence_is_refused(lab: Lab):
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        shown = (await dossier(app.service, OPERATION)).digest
        await app.service.deliver("P-ann", ArrivedAnswer("m3", "failed", why="bounced again"))
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, OPERATION, a.HappenedAnswer(), by="bea", shown=shown)
        assert len(await items(app.service.reader)) == 1


@virtual
async def test_compensation_is_one_of_the_answers(lab: Lab):
    desk, _ = paying(lab)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        assert (await dossier(app.service, OPERATION)).undoes == (
            "the whole run p-ann",
            "p-ann/write#1: stands",
            "p-ann/pay#1: compensated by take_back",
        )
        await answer(app.service, OPERATION, a.CompensateAnswer("the customer calls"), by="bea")
        assert await items(app.service.reader) == []
        with suppress(RunStopped):  # it is undone
            await app.resume("p-ann")
    assert [one for one in lab.sent if one.startswith("take back")] == ["take back ann"]


@virtual
async def test_what_has_no_compensation_offers_none(lab: Lab):
    desk, _ = paying(lab, compensates=False)
    async with lab.app(desk) as app:
        await contradicted(app, desk)
        (item,) = await items(app.service.reader)
        assert item.answers[-1] == f"beforehand resolve {OPERATION} --did-not-happen --evidence TEXT --by NAME"
        with pytest.raises(UsageError, match="declares no compensation"):
            await answer(app.service, OPERATION, a.CompensateAnswer(), by="bea")
        with pytest.raises(UsageError, match="is not sent again"):
            await answer(app.service, OPERATION, a.DidNotHappenAnswer("retry"), by="bea")
        assert len(await items(app.service.reader)) == 1


@pytest.mark.parametrize(
    ("word", "verdict", "says"),
    [
        ("did_not_happen", Happened("R-1", evidence="in the books"), "the verifier found it: in the books"),
        ("happened", DidNotHappen("not in the books"), "the verifier did not find it: not in the books"),
        ("happened", Conflict("another one"), "the verifier found something else: another one"),
        ("happened", Happened("R-1"), ""),
        ("did_not_happen", DidNotHappen(), ""),
        ("did_not_happen", CannotTell("busy"), ""),
    ],
)
@virtual
async def test_a_verdict_that_comes_after_a_persons_word_is_evidence_too(lab: Lab, word: Any, verdict: Any, says: str):
    reading: list[asyncio.Future[None]] = []

    @tool
    async def pay(name: str) -> str:
        raise Ambiguous("no answer")

    @pay.verify(settle_window=timedelta(0), deadline=timedelta(seconds=1), every=timedelta(seconds=1))
    async def find(operation: Operation[str], name: str) -> Verdict[str]:
        if reading:
            if not reading[0].done():
                reading[0].set_result(None)
            await asyncio.sleep(5)
            return verdict
        return CannotTell("busy")

    @agent(run_id="p-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return (await pay.outcome(name)).status

    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        reading.append(asyncio.get_running_loop().create_future())
        await reading[0]
        await app.service.resolve(OPERATION, word, by="bea", result=result("R-1"))
        await lab.pass_time(minutes=1)
        assert (await app.service.row("p-ann")).status == "completed"
        assert [one.asks.partition("contradicted: ")[2] for one in await items(app.service.reader)] == (
            [says] if says else []
        )
