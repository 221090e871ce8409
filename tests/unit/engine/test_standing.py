"""Standing permissions: a yes given in advance, counted where something leaves on it, and never overspent."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest

from beforehand import Key, NotSent, Run, agent, current_operation, tool
from beforehand.engine import approvals, executor
from beforehand.errors import ArgumentError, OperationCancelled, RunSuspended, UsageError
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from beforehand.model.standing_permission import Spent, StandingPermission
from beforehand.people.dossier import dossier
from beforehand.people.standing_permissions import add_standing, list_standing, revoke_standing
from beforehand.policies import Gate, Retry
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

HOUR_MS = 3_600_000
UNTIL = EPOCH_MS + 24 * HOUR_MS


def wish(**more: Any) -> StandingPermission:
    return msgspec.structs.replace(
        StandingPermission("", "refund", "bea", UNTIL, 'cents <= 9000 && customer == "ann"'), **more
    )


def desk_of(lab: Lab, cents: int = 9000, gate: Any = "cents > 5000", **clauses: Any) -> Any:
    @tool(gate=gate, idempotency=Key.forever(), **clauses)
    async def refund(customer: str, cents: int) -> str:
        lab.sent.append(f"refund {cents}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund("ann", cents)

    return desk


@virtual
async def test_what_is_allowed_in_advance_leaves_and_is_counted_with_its_intent(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        given = await add_standing(app.engine, wish(times=2, amount="cents"))
        assert await app.run(desk, "one") == "paid 9000"
        assert await app.run(desk, "two") == "paid 9000"
        with pytest.raises(RunSuspended, match="the contract asks for a person"):
            await app.run(desk, "three")
        (listed,) = await list_standing(app.service.reader, EPOCH_MS)
        assert listed.spent == Spent(2, 2, 18_000, "", ("r-one/refund#1", "r-two/refund#1"))
        assert listed.ended == "it was used 2 times"
        assert (await dossier(app.service, "r-three/refund#1")).standing == (f"{given.id} of bea: it was used 2 times",)
    (attempt,) = lab.of("r-one", r.AttemptStarted)
    assert (attempt.standing, len(attempt.approval)) == (given.id, 32)
    assert not lab.of("r-one", r.OperationParked)
    notes = [note.text for one in timeline("r-one", lab.records("r-one")).entries for note in one.notes]
    assert f"on the standing permission {given.id}" in notes


@pytest.mark.parametrize(
    ("change", "cents"),
    [
        ({"where": "cents <= 8000"}, 9000),
        ({"tool": "other"}, 9000),
        ({"where": "nothing > 5"}, 9000),
        ({"total": 8000, "amount": "cents"}, 9000),
        ({"amount": "customer"}, 9000),
        ({"amount": "euros"}, 9000),
        ({"amount": "cents"}, -9000),
    ],
    ids=[
        "too much",
        "another tool",
        "no such parameter",
        "over the total",
        "no amount",
        "none of that name",
        "negative",
    ],
)
@virtual
async def test_what_does_not_fit_is_asked(lab: Lab, change: dict[str, Any], cents: int):
    desk = desk_of(lab, cents, gate="true")
    async with lab.app() as without_the_code:
        await add_standing(without_the_code.engine, wish(**change))
    await lab.until_suspended(desk, "ann")
    assert lab.sent == []


@virtual
async def test_where_the_tool_is_known_a_permission_names_its_parameters(lab: Lab):
    async with lab.app(desk_of(lab, redact=["customer"])) as app:
        with pytest.raises(UsageError, match=r"it uses customer, euros; choose from: cents"):
            await add_standing(app.engine, wish(where='euros <= 90 && customer == "ann"'))
        with pytest.raises(UsageError, match="refund has no parameter euros"):
            await add_standing(app.engine, wish(where="cents < 5", amount="euros", total=9))
        assert await list_standing(app.service.reader, EPOCH_MS) == []


@virtual
async def test_what_is_no_number_is_neither_spent_nor_a_bound(lab: Lab):
    """`NaN` is neither over a total nor under it: with one of them nothing would be counted any more."""

    @tool(gate="true", idempotency=Key.forever())
    async def pay(euros: Decimal) -> str:
        lab.sent.append(f"pay {euros}")
        return "paid"

    @agent(run_id="p-{euros}", tools=[pay])
    async def payer(run: Run, euros: str) -> str:
        return await pay(Decimal(euros))

    async with lab.app(payer) as app:
        given = wish(tool="pay", where="true", total=100, amount="euros")
        await add_standing(app.engine, given)
        for euros in ("NaN", "-Infinity", "Infinity", "1e400", "500"):
            with pytest.raises((RunSuspended, ArgumentError)):
                await app.run(payer, euros)
        assert lab.sent == []
        assert await app.run(payer, "60") == "paid"
        for total in ("nan", "inf"):
            with pytest.raises(UsageError, match="is not a limit"):
                await add_standing(app.engine, msgspec.structs.replace(given, total=float(total)))


@virtual
async def test_a_giver_under_another_spelling_is_still_who_asked_for_the_run(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await add_standing(app.engine, wish(by="Bea "))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann", by="bea")
        with pytest.raises(UsageError, match="asked for run r-ann"):
            await app.service.approve("r-ann/refund#1", by=" BEA")
    assert lab.sent == []


@virtual
async def test_it_ends_early_by_the_error_of_the_clocks(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await add_standing(app.engine, wish(until_ms=EPOCH_MS + HOUR_MS))
        await lab.pass_time(hours=1, seconds=-30)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="the end of the permission is in the past"):
            await add_standing(app.engine, wish(until_ms=EPOCH_MS))


@virtual
async def test_it_replaces_neither_two_people_nor_whoever_asked_for_the_run(lab: Lab):
    both, own = desk_of(lab, gate=Gate("true", people=2)), desk_of(lab)
    async with lab.app(both) as app:
        await add_standing(app.engine, wish())
        with pytest.raises(RunSuspended):
            await app.run(both, "ann")
    async with lab.app(own) as app:
        with pytest.raises(RunSuspended):
            await app.run(own, "bob", by="bea")
        with pytest.raises(UsageError, match="bea asked for run r-bob"):
            await app.service.approve("r-bob/refund#1", by="bea")
        await app.service.approve("r-bob/refund#1", by="cid")
        assert await app.run(own, "bob") == "paid 9000"


@virtual
async def test_a_revocation_holds_for_what_has_not_left(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        given = await add_standing(app.engine, wish())
        await app.service.pause_tool("refund", by="ops")
        with pytest.raises(RunSuspended, match="paused"):
            await app.run(desk, "ann")
        assert await revoke_standing(app.engine, given.id, by="cid", why="enough") == Spent()
        again = await revoke_standing(app.engine, given.id, by="cid")
        assert (again.times, again.revoked_by) == (0, "cid"), "given again, as after a crash, it ends alike"
        with pytest.raises(UsageError, match="was revoked by cid already"):
            await revoke_standing(app.engine, given.id, by="dan")
        await app.service.unpause_tool("refund", by="ops")
        with pytest.raises(RunSuspended, match="the contract asks for a person"):
            await app.run(desk, "ann")
        (listed,) = await list_standing(app.service.reader, EPOCH_MS)
        assert listed.ended == "it was revoked by cid"
        with pytest.raises(UsageError, match=f"permissions: {given.id}"):
            await revoke_standing(app.engine, "s-0", by="cid")
    assert lab.sent == []


@pytest.mark.parametrize("word", ["cancel", "pause"])
@virtual
async def test_an_order_that_comes_while_uses_are_counted_is_heeded(
    lab: Lab, word: Literal["cancel", "pause"], monkeypatch: pytest.MonkeyPatch
):
    """That it may be sent was decided before: once the order is on record, no attempt begins."""
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await add_standing(app.engine, wish(times=2))

        async def counted(flight: Any, permit: Any) -> Any:
            await getattr(app.service, word)("r-one", by="bea")
            return await approvals.permission_use_post(flight, permit)

        monkeypatch.setattr(executor, "permission_use_post", counted)
        with pytest.raises(OperationCancelled if word == "cancel" else RunSuspended):
            await app.run(desk, "one")
    assert not lab.sent
    assert not lab.of("r-one", r.AttemptStarted)


@virtual
async def test_of_many_at_once_only_as_many_leave_as_are_allowed(lab: Lab):
    """Processes that all saw the same number: the ledger lets one of them take it, and the others look again."""
    lab.lag_s = 0.01
    desks = [desk_of(lab) for _ in range(4)]
    async with lab.app(desks[0]) as app:
        await add_standing(app.engine, wish(total=27_500, amount="cents"))

    async def process(number: int) -> list[str]:
        async with lab.app(desks[number]) as app:
            names = [f"{number}-{one}" for one in range(3)]
            told = await asyncio.gather(*(app.run(desks[number], name) for name in names), return_exceptions=True)
            return [str(one) for one in told]

    told = [one for some in await asyncio.gather(*map(process, range(4))) for one in some]
    assert len(lab.sent) == 3
    assert sum(one == "paid 9000" for one in told) == 3
    async with lab.app(desks[0]) as app:
        (listed,) = await list_standing(app.service.reader, EPOCH_MS)
        assert (listed.spent.times, listed.spent.sum) == (3, 27_000)


@virtual
async def test_what_is_held_uses_it_with_the_hold_and_leaves_at_the_commit(lab: Lab):
    @tool(gate="true", idempotency=Key.forever())
    async def mail(cents: int) -> str:
        lab.sent.append(f"mail {cents}")
        return "mailed"

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip") as trip:
            promises = [await trip.on_commit(mail.options(step=f"m{one}"), one) for one in (1, 2)]
        return ", ".join(one.result for one in promises)

    async with lab.app(desk) as app:
        given = await add_standing(app.engine, wish(tool="mail", where="true", times=1))
        with pytest.raises(RunSuspended, match="mail"):
            await app.run(desk, "ann")
        (held,) = lab.of("r-ann", r.OperationHeld)
        assert held.standing == given.id
        await revoke_standing(app.engine, given.id, by="cid")
        await app.service.approve("r-ann/trip/m2", by="bea")
        assert await app.run(desk, "ann") == "mailed, mailed"
    assert lab.sent == ["mail 1", "mail 2"]


@virtual
async def test_what_is_not_stored_cannot_be_judged_in_advance(lab: Lab):
    @tool(gate="true", redact=["card"])
    async def refund(card: str, cents: int) -> str:
        lab.sent.append("paid")
        return "paid"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund("4242", 1)

    async with lab.app(desk) as app:
        await add_standing(app.engine, wish(where="true"))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"by": ""}, "a standing permission needs the name of a person"),
        ({"times": -1}, "a limit cannot be negative"),
        ({"total": 5}, "of what"),
        ({"where": "cents <="}, "cents <=|Syntax|syntax|parse"),
    ],
)
@virtual
async def test_what_could_never_be_used_is_refused(lab: Lab, change: dict[str, Any], says: str):
    async with lab.app() as app:
        with pytest.raises(UsageError, match=says):
            await add_standing(app.engine, wish(**change))
        assert await list_standing(app.service.reader, EPOCH_MS) == []


@virtual
async def test_a_retry_of_what_was_allowed_in_advance_is_no_second_use(lab: Lab):
    tried: list[int] = []

    @tool(gate="cents > 5000", idempotency=Key.forever(), retry=Retry(base=timedelta(milliseconds=1)))
    async def refund(customer: str, cents: int) -> str:
        tried.append(current_operation().attempt)
        if tried == [1]:
            raise NotSent("busy")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund("ann", 9000)

    async with lab.app(desk) as app:
        await add_standing(app.engine, wish(times=2))
        assert await app.run(desk, "one") == "paid 9000"
        (listed,) = await list_standing(app.service.reader, EPOCH_MS)
    assert tried == [1, 2]
    assert listed.spent.times == 1
