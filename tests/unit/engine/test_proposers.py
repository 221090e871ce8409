"""Who told a run something proposed what it does next: another person has to approve it."""

import contextlib
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Key, Operation, Run, agent, current_operation, tool
from beforehand.control.service import ControlService
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import BeforehandError, Deferred, RunSuspended, SignInNeeded, UsageError
from beforehand.inspect.explain import explain
from beforehand.inspect.fork import fork
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.model.run_history import RunHistory
from beforehand.model.standing_permission import StandingPermission
from beforehand.people.loaded_item import load_item
from beforehand.people.standing_permissions import add_standing
from beforehand.policies import Gate, Require, Retry
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

REFUND = "r-ann/refund#1"


def asking(lab: Lab) -> Any:
    """An agent that asks how much, and refunds that."""

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        cents = await run.ask("how much?", returns=int)
        await run.messages()
        paid = await refund(cents)
        if await run.ask("all well?", choices=["yes", "no"]) == "no":
            await refund(cents + 1)
        return paid

    return desk


async def waits(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann", by="ann")


async def told_how_much(app: Any, desk: Any, cents: int, by: str) -> None:
    """The run asks, this person answers, and the run goes on."""
    await waits(app, desk)
    await app.service.answer("r-ann/ask#1", cents, by=by)
    await waits(app, desk)


@virtual
async def test_who_answered_cannot_approve_what_came_of_it(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await told_how_much(app, desk, 99_999, by="ben")
        for name in ("ben", "Ben", "ann"):
            with pytest.raises(UsageError, match="cannot approve what it does"):
                await app.service.approve(REFUND, by=name)
        assert (await load_item(app.service.reader, REFUND)).proposers == ("ann", "ben")
        await app.service.approve(REFUND, by="cid")
        await waits(app, desk)
        assert lab.sent == ["refund 99999"]


@virtual
async def test_who_sent_a_message_cannot_approve_either_and_a_process_says_so(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.answer("r-ann/ask#1", 9000, by="eve")
        await app.service.tell("r-ann", "give them 9000", by="ben")
        await waits(app, desk)
        with pytest.raises(UsageError, match="ben asked for run r-ann, or told it something"):
            await app.service.stand_in(REFUND, "paid", by="ben")
        history = await app.service.history("r-ann")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben", "eve")
    assert lab.sent == []


@virtual
async def test_to_approve_or_to_decline_proposes_nothing_and_later_answers_do_not_count(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await told_how_much(app, desk, 9000, by="ben")
        await app.service.approve(REFUND, by="cid")
        await waits(app, desk)
        await lab.pass_time(minutes=1)
        await app.service.answer("r-ann/ask#2", "no", by="dan")
        await waits(app, desk)
        history = await app.service.history("r-ann")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben"), "dan said something later"
        assert history.proposers(history.operations["refund#2"]) == ("ann", "ben", "dan")
        await app.service.approve("r-ann/refund#2", by="cid")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_a_standing_permission_of_who_answered_does_not_cover_it(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        until = EPOCH_MS + int(timedelta(days=7).total_seconds() * 1000)
        await add_standing(app.engine, StandingPermission("", "refund", "ben", until, "cents <= 100000"))
        await told_how_much(app, desk, 9000, by="ben")
        assert lab.sent == []
        assert [one.step for one in lab.of("r-ann", r.OperationParked)] == ["refund#1"]


async def asked_to_pay(app: Any, run: str) -> tuple[str, ...]:
    """Who proposed the one payment that people are asked to approve."""
    (found,) = [one for one in (await app.service.history(run)).operations.values() if one.wants_approval]
    return (await app.service.history(run)).proposers(found)


def family(lab: Lab, parent: Any, child: Any) -> tuple[Any, Any]:
    """An agent and the one that it starts; both may pay, which a person has to approve."""

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return f"paid {cents}"

    @agent(name="below", tools=[pay])
    async def below(run: Run, cents: int) -> int:
        return int(await child(run, cents, pay))

    @agent(name="above", run_id="r-{name}", tools=[pay])
    async def above(run: Run, name: str) -> str:
        return str(await parent(run, below, pay))

    return above, below


@virtual
async def test_who_answered_a_run_proposes_what_its_children_do(lab: Lab):
    async def parent(run: Run, below: Any, pay: Any) -> Any:
        return await run.join(await run.start(below, await run.ask("how much?", returns=int)))

    async def child(run: Run, cents: int, pay: Any) -> int:
        await pay(cents)
        return cents

    above, below = family(lab, parent, child)
    async with lab.app(above, below) as app:
        await told_how_much(app, above, 9000, by="ben")
        with pytest.raises(RunSuspended):
            await app.resume("r-ann~below.1")
        with pytest.raises(UsageError, match="cannot approve what it does"):
            await app.service.approve("r-ann~below.1/pay#1", by="ben")
        assert await asked_to_pay(app, "r-ann~below.1") == ("ann", "ben")
    assert lab.sent == []


@virtual
async def test_who_answered_a_child_proposes_what_comes_of_its_end(lab: Lab):
    async def parent(run: Run, below: Any, pay: Any) -> Any:
        return await pay(await run.join(await run.start(below, 1)))

    async def child(run: Run, cents: int, pay: Any) -> int:
        return int(await run.ask("how much?", returns=int))

    above, below = family(lab, parent, child)
    async with lab.app(above, below) as app:
        await waits(app, above)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann~below.1")
        await app.service.answer("r-ann~below.1/ask#1", 9000, by="ben")
        assert await app.resume("r-ann~below.1") == 9000
        await waits(app, above)
        assert await asked_to_pay(app, "r-ann") == ("ann", "ben")
    assert lab.sent == []


@pytest.mark.parametrize("way", ["stand in", "edit", "settle"])
@virtual
async def test_who_gave_a_result_or_arguments_proposes_what_comes_of_it(lab: Lab, way: str):
    @tool(gate="true", retry=Retry(attempts=1))
    async def look_up(name: str) -> int:
        if name == "lost":
            raise TimeoutError
        return len(name)

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[look_up, pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000 + await look_up("lost" if way == "settle" else name))

    first = "r-ann/look_up#1"
    async with lab.app(desk) as app:
        await waits(app, desk)
        match way:
            case "stand in":
                await app.service.stand_in(first, 700, by="ben")
            case "edit":
                await app.service.edit(first, {"name": "x" * 700}, by="ben")
                await waits(app, desk)
                shown = (await load_item(app.service.reader, first)).digest
                await app.service.approve(first, by="cid", shown=shown)
            case _:
                await app.service.approve(first, by="cid")
                await waits(app, desk)
                await app.service.resolve(first, "happened", by="ben", evidence="I looked", result=700)
        await waits(app, desk)
        assert await asked_to_pay(app, "r-ann") == ("ann", "ben")
        with pytest.raises(UsageError, match="cannot approve what it does"):
            await app.service.approve("r-ann/pay#1", by="ben")
    assert lab.sent == []


@virtual
async def test_who_forks_a_run_proposes_what_the_fork_does(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        await told_how_much(app, desk, 9000, by="ben")
        await fork(app.engine, "r-ann", "refund#1", "r-again", "fay")
        with pytest.raises(RunSuspended):
            await app.resume("r-again", by="gus")
        with pytest.raises(UsageError, match="cannot approve what it does"):
            await app.service.approve("r-again/refund#1", by="fay")
        history = await app.service.history("r-again")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben", "fay")
    assert lab.sent == []


def test_before_is_by_the_order_of_records_and_not_by_a_clock():
    """The clock of the process that took the answer was ahead of the one that asked."""
    history = RunHistory("r-ann")
    intent = r.Intent("pay", r.Raw(b"{}"), "digest", "contract")
    for record in (
        r.RunStarted("desk", r.Raw(b"{}"), "digest", by="ann", at=5000, up=1),
        r.MessageReceived("pay more", "ben", at=7000, up=1),
        r.OperationPlanned("pay#1", intent, at=5001, up=1),
        r.OperationParked(step="pay#1", why="?", asks="digest", at=5002, up=1),
        r.MessageReceived("pay less", "cid", at=5001, up=1),
    ):
        history.add(record)
    assert history.proposers(history.operations["pay#1"]) == ("ann", "ben")


@virtual
async def test_a_fork_knows_who_proposed_in_the_run_that_it_was_forked_from(lab: Lab):
    """In its records a result that a person gave is only a reference."""

    @tool(gate="true")
    async def look_up(name: str) -> int:
        return len(name)

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[look_up, pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000 + await look_up(name))

    async with lab.app(desk) as app:
        until = EPOCH_MS + int(timedelta(days=7).total_seconds() * 1000)
        await add_standing(app.engine, StandingPermission("", "pay", "ben", until, "true"))
        await waits(app, desk)
        await app.service.stand_in("r-ann/look_up#1", 700, by="ben")
        await waits(app, desk)
        for of, run, by, names in (
            ("r-ann", "again", "fay", ("ann", "ben", "fay")), ("again", "twice", "gus", ("ann", "ben", "fay", "gus")),
        ):  # fmt: skip
            await fork(app.engine, of, "pay#1", run, by)
            with pytest.raises(RunSuspended):
                await app.resume(run)
            assert await asked_to_pay(app, run) == names
    assert lab.sent == []


@virtual
async def test_who_settled_an_effect_proposes_what_comes_of_it_in_a_run_that_reuses_it(lab: Lab):
    @tool(claim="name", idempotency=Key.forever(), retry=Retry(attempts=1))
    async def look_up(name: str) -> int:
        _ = current_operation().key
        raise TimeoutError

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[look_up, pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000 + await look_up("INV"))

    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.resolve("r-ann/look_up#1", "happened", by="ben", evidence="I looked", result=90_000)
        with pytest.raises(RunSuspended):
            await app.run(desk, "two", by="dan")
        assert await asked_to_pay(app, "r-two") == ("dan", "ben")
    assert lab.sent == []


def waiting(lab: Lab) -> Any:
    """An agent that waits for an event that says how much, and refunds that; afterwards it waits for another one."""

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def refund(cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        paid = await refund(await run.wait_for("claim"))
        await run.wait_for("closed")
        return paid

    return desk


@virtual
async def test_who_sent_an_event_cannot_approve_what_came_of_it(lab: Lab):
    desk = waiting(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.signal("r-ann", "claim", payload=99_999, by="ben")
        await waits(app, desk)
        with pytest.raises(UsageError, match="Ben asked for run r-ann, or told it something"):
            await app.service.approve(REFUND, by="Ben")
        await app.service.signal("r-ann", "closed", by="dan")
        await app.service.approve(REFUND, by="cid")
        assert await app.run(desk, "ann") == "paid 99999"
        history = await app.service.history("r-ann")
        assert history.proposers(history.operations["refund#1"]) == ("ann", "ben"), "dan said something later"
        assert [(one.event, one.by) for one in lab.of("r-ann", r.EventReceived)] == [
            ("claim", "ben"),
            ("closed", "dan"),
        ]


@virtual
async def test_who_repeats_an_event_adds_nothing_to_it(lab: Lab):
    desk = waiting(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.signal("r-ann", "claim", payload=9000, once="m-1", by="ben")
        assert not (await app.service.signal("r-ann", "claim", payload=1, once="m-1", by="eve")).fresh
        await waits(app, desk)
        assert await asked_to_pay(app, "r-ann") == ("ann", "ben")
    assert lab.sent == []


@virtual
async def test_a_program_that_sends_an_event_is_no_person(lab: Lab):
    desk = waiting(lab)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.signal("r-ann", "claim", payload=9000)
        await waits(app, desk)
        assert await asked_to_pay(app, "r-ann") == ("ann",)


@virtual
async def test_who_sent_a_child_or_its_parent_an_event_proposes_what_comes_of_it(lab: Lab):
    async def parent(run: Run, below: Any, pay: Any) -> Any:
        return await pay(await run.join(await run.start(below, await run.wait_for("claim"))))

    async def child(run: Run, cents: int, pay: Any) -> int:
        await pay(cents)
        return int(await run.wait_for("more"))

    above, below = family(lab, parent, child)
    async with lab.app(above, below) as app:
        await waits(app, above)
        await app.service.signal("r-ann", "claim", payload=9000, by="ben")
        await waits(app, above)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann~below.1")
        assert await asked_to_pay(app, "r-ann~below.1") == ("ann", "ben")
        await app.service.approve("r-ann~below.1/pay#1", by="cid")
        await app.service.signal("r-ann~below.1", "more", payload=9001, by="dan")
        assert await app.resume("r-ann~below.1") == 9001
        await waits(app, above)
        assert await asked_to_pay(app, "r-ann") == ("ann", "ben", "dan")
        await fork(app.engine, "r-ann", "pay#1", "r-again", "fay")
        with pytest.raises(RunSuspended):
            await app.resume("r-again")
        assert await asked_to_pay(app, "r-again") == ("ann", "ben", "dan", "fay")


@pytest.mark.parametrize("sender", ["", "bank"])
@virtual
async def test_who_delivered_an_answer_proposes_what_comes_of_it_unless_it_is_a_webhook(lab: Lab, sender: str):
    @tool(idempotency=Key.forever())
    async def look_up(name: str) -> int:
        raise Deferred("it is looked up", key=f"L-{name}")

    @tool(gate="cents > 5000", idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="r-{name}", tools=[look_up, pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(await look_up(name))

    async with lab.app(desk) as app:
        await waits(app, desk)
        came = ArrivedAnswer("m-1", result=r.Raw(b"9000"), source="webhook bank" if sender else "ben", sender=sender)
        await app.service.deliver("L-ann", came)
        await waits(app, desk)
        assert await asked_to_pay(app, "r-ann") == (("ann",) if sender else ("ann", "ben"))
    assert lab.sent == []


def wiring(require: Require | None = None, *, parts: bool = False) -> Any:
    @tool(gate=Gate("true", require=require))
    async def wire(name: str) -> str:
        if not parts:
            raise Deferred("accepted", key=f"W-{name}")
        current_operation().pending("receipt", within=timedelta(hours=24), key=f"W-{name}")
        return "sent"

    @agent(run_id="r-{name}", tools=[wire])
    async def desk(run: Run, name: str) -> str:
        sent = await wire.outcome(name)
        return f"{sent.status} {await run.wait_pending(sent) if parts else sent.value}"

    return desk


def brought(by: str, name: str = "m-1") -> ArrivedAnswer:
    return ArrivedAnswer(name, result=r.Raw(b'"ok"'), why="it is booked", source=by)


@pytest.mark.parametrize("early", [True, False])
@virtual
async def test_an_approved_call_takes_no_answer_from_who_started_its_run(lab: Lab, early: bool):
    desk = wiring()
    async with lab.app(desk) as app:
        await waits(app, desk)
        if early:
            await app.service.deliver("W-ann", brought("ann"))
        await app.service.approve("r-ann/wire#1", by="cid")
        await waits(app, desk)
        if early:
            (refused,) = [one for one in lab.of("r-ann", r.CommandApplied) if one.refused]
            assert (refused.by, refused.refused) == ("ann", "ann proposed it")
        else:
            with pytest.raises(UsageError, match="ann asked for run r-ann"):
                await app.service.deliver("W-ann", brought("ann"))
        with pytest.raises(UsageError, match="an id, by which others find it"):
            await app.service.deliver("W-ann", brought("cid", "\u2800"))
        assert (await app.service.operation("r-ann/wire#1"))[1].phase == "awaiting"
        await app.service.deliver("W-ann", brought("cid", "m-2"))
        assert await app.run(desk, "ann") == "succeeded ok"
        reader = app.service.reader
        explained = await explain(reader, "r-ann/wire#1", Now("", 0, EPOCH_MS, 0))
        assert "it is booked (by cid)" in str(explained)
        assert "it is booked (by cid)" in str(timeline("r-ann", [one async for _, one in reader.records("r-ann")]))


@virtual
async def test_a_part_of_an_approved_call_takes_no_answer_from_who_started_its_run(lab: Lab):
    desk = wiring(parts=True)
    async with lab.app(desk) as app:
        await waits(app, desk)
        await app.service.approve("r-ann/wire#1", by="cid")
        await waits(app, desk)
        with pytest.raises(UsageError, match="ann asked for run r-ann"):
            await app.service.deliver("W-ann", brought("ann"))
        await app.service.deliver("W-ann", brought("", "m-2"))
        assert "succeeded" in await app.run(desk, "ann")


@virtual
async def test_where_only_a_person_who_signed_in_approves_a_person_delivers_no_answer(lab: Lab):
    desk = wiring(Require(person=True))
    async with lab.app(desk) as app:
        await waits(app, desk)
        await ControlService(app.engine, via="password").approve("r-ann/wire#1", by="cid")
        await waits(app, desk)
        for service in (app.service, ControlService(app.engine, via="password")):
            with pytest.raises(SignInNeeded, match="a person who signed in"):
                await service.deliver("W-ann", brought("cid"))
        await app.service.deliver(
            "W-ann", ArrivedAnswer("m-2", source="webhook bank", sender="bank", result=r.Raw(b'"ok"'))
        )
        assert "succeeded" in await app.run(desk, "ann")


def booking(lab: Lab) -> Any:
    """An agent that charges, inside a transaction that then waits; the refund is asked about."""

    @tool
    async def charge(cents: int) -> str:
        return "ok"

    @charge.compensate(restores=True)
    @tool(gate="true")
    async def back(operation: Operation[str], cents: int) -> str:
        lab.sent.append(f"back {cents}")
        return "ok"

    @agent(run_id="b-{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await charge(1)
            await run.wait_for("go")
        return "done"

    return desk


@pytest.mark.parametrize("order", ["abort", "cancel"])
@virtual
async def test_who_calls_off_a_transaction_approves_none_of_its_compensations(lab: Lab, order: str):
    desk = booking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann", by="ann")
        if order == "abort":
            await app.service.call_off("b-ann", "trip", by="bea", why="too dear")
        else:
            await app.service.cancel("b-ann", by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        asked = "b-ann/trip/charge#1/undo"
        with pytest.raises(UsageError, match="bea asked for run b-ann, or told it something, or called it off"):
            await app.service.approve(asked, by="bea")
        assert (await load_item(app.service.reader, asked)).proposers == ("ann", "bea")
        assert lab.sent == []
        await app.service.approve(asked, by="cid")
        with contextlib.suppress(BeforehandError):
            await app.run(desk, "ann")
    assert lab.sent == ["back 1"]
