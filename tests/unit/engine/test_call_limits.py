"""Limits of calls: at once, by a rate, and after a `Retry-After`, over all processes on one journal."""

import asyncio
import contextlib
import itertools
from datetime import timedelta

import pytest

from beforehand import Key, NotSent, Run, RunSuspended, agent, tool
from beforehand.cli.queues import list_calls
from beforehand.errors import JournalUnavailable
from beforehand.journal.cells import limit_uses
from beforehand.journal.port import Permit, PermitRequest, ReleaseRequest, Worker
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.queues.call_limits import AppliedLimit, CallLimit, LimitedCall, ServiceLimit
from beforehand.queues.limits import DeclaredLimits, TenantLimits
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual


class Service:
    """A service that counts the calls that are under way, and notes when each began."""

    def __init__(self, lab: Lab, seconds: float = 1) -> None:
        self.lab, self.seconds = lab, seconds
        self.now, self.most = 0, 0
        self.began: list[float] = []
        self.raises: list[Exception] = []

    async def call(self, name: str) -> str:
        self.began.append(round(self.lab.loop.time(), 3))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.now -= 1
        if self.raises:
            raise self.raises.pop(0)
        return f"charged {name}"


def charging(service: Service, **contract):
    contract = contract or {"idempotency": Key.forever()}

    @tool(**contract)
    async def charge(name: str) -> str:
        return await service.call(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge(name)

    return desk


async def limit(app, **fields):
    await app.engine.queues.declare(app.engine.journal, DeclaredLimits(tools={"charge": CallLimit(**fields)}))


async def known_to_all(*apps):
    for app in apps:
        await app.engine.queues.refresh(app.engine.journal)


def gaps(moments):
    return [round(later - sooner, 3) for sooner, later in itertools.pairwise(sorted(moments))]


@virtual
async def test_no_more_calls_than_declared_are_under_way_in_two_processes(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk) as one, lab.app(desk) as two:
        await limit(one, at_once=3)
        await known_to_all(two)
        running = [app.start(desk, f"{number}-{at}") for number in range(10) for at, app in enumerate((one, two))]
        assert len({await run.result() for run in running}) == 20
        assert service.most == 3
        assert await limit_uses(lab.journal) != []
        assert [use.permits for use in await limit_uses(lab.journal)] == [()]
    assert max(service.began) < 9, "slots that are free are used soon"


@virtual
async def test_a_rate_holds_over_two_processes_and_bursts_once_after_a_pause(lab: Lab):
    service = Service(lab, 0.001)
    desk = charging(service)
    async with lab.app(desk, hold_ms=10**9) as one, lab.app(desk, hold_ms=10**9) as two:
        await limit(one, rate="60/minute", burst=3)
        await known_to_all(two)
        running = [app.start(desk, f"{number}-{at}") for number in range(5) for at, app in enumerate((one, two))]
        for run in running:
            await run.result()
    began = sorted(service.began)
    assert gaps(began)[:2] == [0, 0]
    for first, later in itertools.combinations(range(10), 2):
        assert later - first + 1 <= 3 + (began[later] - began[first]) / 1 + 0.001
    assert began[-1] - began[0] < 10, "the rate is used"


@virtual
async def test_retry_after_slows_every_process(lab: Lab):
    service = Service(lab, 0.001)
    service.raises = [NotSent("busy", retry_after=20)]
    desk = charging(service)
    async with lab.app(desk, hold_ms=10**9) as one, lab.app(desk, hold_ms=10**9) as two:
        await limit(one, at_once=5)
        await known_to_all(two)
        first = one.start(desk, "ann")
        await lab.pass_time(seconds=1)
        second = two.start(desk, "bob")
        await second.result()
        await first.result()
    assert service.began[0] < 1
    assert min(service.began[1:]) >= 20


@virtual
async def test_a_process_that_died_gives_its_slots_back(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk, hold_ms=10**9) as app:
        await limit(app, at_once=1)
        await lab.journal.beat(Worker("dying"), 10**9)
        one = AppliedLimit("tool charge", CallLimit(at_once=1))
        held = PermitRequest(Permit("dying", 1), (one.cell,), app.engine.queues.newest.entry)
        assert (await lab.journal.commit(held)).granted
        waits = app.start(desk, "ann")
        await lab.pass_time(seconds=60)
        assert service.began == []
        lab.journal.kill("dying")
        assert await waits.result() == "charged ann"
        assert service.began[0] < 62


@virtual
async def test_a_new_limit_that_a_process_has_not_read_holds_for_it(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk) as one, lab.app(desk) as two:
        await limit(one, at_once=5)
        await known_to_all(two)
        await limit(one, at_once=1)
        assert two.engine.queues.limits.tools["charge"].at_once == 5
        for run in [two.start(desk, f"{number}") for number in range(4)]:
            await run.result()
        assert service.most == 1


@virtual
async def test_a_tool_without_a_limit_asks_for_no_permit(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk) as app:
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits(tools={"other": CallLimit(at_once=1)}))
        await app.run(desk, "ann")
        assert await limit_uses(lab.journal) == []


@virtual
async def test_reads_are_limited_too_and_verification_is_not(lab: Lab):
    service = Service(lab)

    @tool(effect="read")
    async def charge(name: str) -> str:
        return await service.call(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge(name)

    async with lab.app(desk) as app:
        await limit(app, at_once=2)
        for run in [app.start(desk, f"{number}") for number in range(6)]:
            await run.result()
        assert service.most == 2


@virtual
async def test_a_call_that_outlives_its_attempt_keeps_its_slot(lab: Lab):
    service = Service(lab, 50)
    desk = charging(service, idempotency=Key.forever(), timeout=timedelta(seconds=2), retry=Retry(attempts=1))
    async with lab.app(desk, hold_ms=1_000) as app:
        await limit(app, at_once=1)
        app.start(desk, "ann")
        await lab.pass_time(seconds=10)
        # a coroutine is cancelled when its time is over, so that its slot is free
        assert [len(use.permits) for use in await limit_uses(lab.journal)] == [0]


@virtual
async def test_a_cancelled_run_that_waits_leaves_its_place(lab: Lab):
    service = Service(lab, 5)
    desk = charging(service)
    async with lab.app(desk) as app:
        await limit(app, at_once=1)
        first, second, third = (app.start(desk, name) for name in ("ann", "bob", "cid"))
        await lab.pass_time(seconds=1)
        await app.service.cancel("r-bob", by="eve")
        await first.result()
        assert await third.result() == "charged cid"
        assert (service.most, len(service.began)) == (1, 2)
        del second


@virtual
async def test_a_permit_is_released_though_its_run_ends_at_once_and_is_no_branch_of_it(lab: Lab):
    lab.lag_s = 0.5  # a release is under way when the run has ended
    service = Service(lab)

    @tool(effect="read")
    async def charge(name: str) -> str:
        return await service.call(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return " ".join([await charge(name), *await asyncio.gather(charge("a"), charge("b"))])

    async with lab.app(desk) as app:
        await limit(app, at_once=2)
        assert await app.run(desk, "ann") == "charged ann charged a charged b"
        await lab.pass_time(seconds=2)
        assert [use.permits for use in await limit_uses(lab.journal)] == [()]
        assert [one.step for one in lab.of("r-ann", r.ReadRecorded)] == ["charge#1", "~1/charge#1", "~2/charge#1"]


@virtual
async def test_what_waits_is_planned_and_says_for_what(lab: Lab):
    service = Service(lab, 5)
    desk = charging(service)
    async with lab.app(desk) as app:
        await limit(app, rate="1/hour")
        await app.run(desk, "ann")
        waiting = app.start(desk, "bob")
        await lab.pass_time(seconds=1)
        (line,) = await lab.journal.runs(run="r-bob")
        assert line.status == "suspended"
        assert b"the limit of tool charge is reached" in line.waits
        assert [one.waits_for for one in lab.of("r-bob", r.OperationPlanned)] == ["the limit of tool charge"]
        assert 3_590_000 < line.due_ms - lab.clock.wall_ms() <= 3_600_000
        del waiting


@virtual
async def test_a_call_whose_caller_was_cancelled_keeps_its_slot_until_it_ends(lab: Lab):
    service = Service(lab, 10)

    @tool(idempotency=Key.forever())
    async def charge(name: str) -> str:
        return await service.call(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if name == "hasty":
            await asyncio.wait_for(charge(name), 1)
        return await charge(name)

    async with lab.app(desk) as app:
        await limit(app, at_once=1)
        app.start(desk, "hasty")
        await lab.pass_time(seconds=0.5)
        assert await app.run(desk, "ann") == "charged ann"
        assert service.most == 1
        assert service.began[1] >= 10


@pytest.mark.parametrize("moment", [f"{number / 20}" for number in range(12)])
@virtual
async def test_a_caller_that_is_cancelled_at_any_moment_leaves_neither_a_permit_nor_a_call_above_the_limit(
    lab: Lab, moment: str
):
    lab.lag_s = 0.1  # the permit, the attempt, the call and its end each take a while
    service = Service(lab, 0.1)

    @tool(idempotency=Key.forever())
    async def charge(name: str) -> str:
        return await service.call(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(charge(name), float(moment))
        return await charge(f"{name} again")

    async with lab.app(desk) as app:
        await limit(app, at_once=1)
        running = [app.start(desk, f"{number}") for number in range(3)]
        assert [await one.result() for one in running] == [f"charged {number} again" for number in range(3)]
        assert service.most == 1
        await lab.pass_time(seconds=5)
        assert [use.permits for use in await limit_uses(lab.journal)] == [()]


@virtual
async def test_an_app_that_closes_keeps_the_permits_of_calls_that_run_on(lab: Lab):
    service = Service(lab, 100)
    desk = charging(service)
    async with lab.app(desk, grace_ms=1_000) as app:
        await limit(app, at_once=2)
        for name in ("ann", "bob", "cid"):
            app.start(desk, name)
        await lab.pass_time(seconds=99.5)
        service.seconds = 10**6
        await lab.pass_time(seconds=1)
    held = [one.operation for use in await limit_uses(lab.journal) for one in use.permits]
    assert held == ["r-cid/charge#1"]
    lab.journal.kill(lab.processes[-1].worker)
    assert [use.permits for use in await limit_uses(lab.journal)] == [()]


@virtual
async def test_a_permit_that_could_not_be_released_is_released_later(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk) as app:
        await limit(app, at_once=1)
        failures = [JournalUnavailable("the disk is full")] * 3

        async def failing(request: ReleaseRequest, commit: Commit) -> None:
            if failures:
                raise failures.pop()
            await commit(request)

        intercept(lab.journal, ReleaseRequest, failing)
        await app.run(desk, "ann")
        assert await app.run(desk, "bob") == "charged bob"
        await lab.pass_time(seconds=10)
        assert [use.permits for use in await limit_uses(lab.journal)] == [()]


@virtual
async def test_calls_of_a_cancelled_run_hold_up_no_later_one(lab: Lab):
    """Forty calls of a cancelled run were waited for, each for its minute, while no call was made."""
    service = Service(lab)

    @tool(idempotency=Key.forever())
    async def charge_many(name: str) -> str:
        return await service.call(name)

    @agent(run_id="m-{name}", tools=[charge_many])
    async def many(run: Run, name: str) -> str:
        await run.gather(*(charge_many(f"{name}-{number}") for number in range(40)))
        return "left"

    @agent(run_id="o-{name}", tools=[charge_many])
    async def single(run: Run, name: str) -> str:
        return await charge_many(name)

    declared = DeclaredLimits(tools={"charge_many": CallLimit(rate="1/minute")})
    async with lab.app(many, single, queues=declared, recover=True) as app:
        with pytest.raises(RunSuspended, match="the limit of tool charge_many"):
            await app.run(many, "ann")
        await app.service.cancel("m-ann", by="eve")
        await lab.pass_time(seconds=20)
        assert (await app.engine.journal.runs(run="m-ann"))[0].status == "stopped"
        later = asyncio.create_task(app.run(single, "bob"))
        await lab.pass_time(minutes=3)
        assert later.done()
    assert len(service.began) == 2


@virtual
async def test_calls_that_wait_go_on_as_soon_as_a_higher_rate_is_declared(lab: Lab):
    service = Service(lab)
    desk = charging(service)
    async with lab.app(desk) as app:
        await limit(app, rate="1/hour")
        runs = [asyncio.create_task(app.run(desk, str(number))) for number in range(6)]
        await lab.pass_time(minutes=1)
        assert len(service.began) == 1
        await limit(app, rate="10/second")
        await lab.pass_time(minutes=1)
        assert all(task.done() for task in runs)


# --- a call under several limits -------------------------------------------------------------------------------------


def shop(service: Service):
    """Two tools that reach one service, and a run that calls one of them."""

    @tool(idempotency=Key.forever())
    async def charge(name: str) -> str:
        return await service.call(name)

    @tool(idempotency=Key.forever())
    async def refund(name: str) -> str:
        return await service.call(name)

    @agent(run_id="{name}", tools=[charge, refund])
    async def desk(run: Run, name: str) -> str:
        return await (charge if name.startswith("charge") else refund)(name)

    return desk


def service_limit(**fields) -> dict[str, ServiceLimit]:
    return {"bank": ServiceLimit(tools=("charge", "refund"), **fields)}


@virtual
async def test_the_tools_of_a_service_share_its_limit_and_each_keeps_its_own(lab: Lab):
    service = Service(lab)
    desk = shop(service)
    declared = DeclaredLimits(services=service_limit(at_once=3), tools={"refund": CallLimit(at_once=1)})
    async with lab.app(desk, queues=declared) as one, lab.app(desk) as two:
        await known_to_all(two)
        running = [
            app.start(desk, f"{which}-{number}{place}")
            for number in range(8)
            for which in ("charge", "refund")
            for place, app in enumerate((one, two))
        ]
        for run in running:
            await run.result()
        assert service.most == 3
        assert {use.name: use.permits for use in await limit_uses(lab.journal)} == {
            "service bank": (),
            "tool refund": (),
        }
    assert max(service.began) < 20, "what waits for its tool delays no call of the other tool"


@virtual
async def test_calls_that_wait_for_one_limit_do_not_delay_those_under_another(lab: Lab):
    service = Service(lab, 0.001)
    desk = shop(service)
    declared = DeclaredLimits(services=service_limit(at_once=2), tools={"refund": CallLimit(rate="1/hour")})
    async with lab.app(desk, hold_ms=10**9, queues=declared) as app:
        waiting = [app.start(desk, f"refund-{number}") for number in range(5)]
        await lab.pass_time(seconds=5)
        charged = [app.start(desk, f"charge-{number}") for number in range(5)]
        for run in charged:
            await run.result()
        assert lab.loop.time() < 30
    del waiting


@virtual
async def test_a_call_under_two_busy_limits_is_made_in_its_turn(lab: Lab):
    """It waits now for the one and now for the other, and later calls that need one of them do not go before it."""
    service = Service(lab, 1)
    desk = shop(service)
    declared = DeclaredLimits(services=service_limit(at_once=1), tools={"refund": CallLimit(rate="1/second")})
    async with lab.app(desk, hold_ms=10**9, queues=declared) as app:
        first = [app.start(desk, f"charge-{number}") for number in range(5)]
        await lab.pass_time(seconds=0.5)
        refund = app.start(desk, "refund-it")
        await lab.pass_time(seconds=0.5)
        later = [app.start(desk, f"{which}-later-{number}") for number in range(20) for which in ("charge", "refund")]
        await refund.result()
        assert len(service.began) <= len(first) + 2
        for run in [*first, *later]:
            await run.result()
        assert service.most == 1


@virtual
async def test_an_operation_that_waits_for_another_limit_meanwhile_keeps_its_rank(lab: Lab):
    declared = DeclaredLimits(services=service_limit(at_once=1), tools={"refund": CallLimit(at_once=1)})
    async with lab.app(shop(Service(lab)), queues=declared) as app:
        limits, nothing = app.engine.limits, lambda: None
        for name, operation in (("service bank", "old"), ("service bank", "new"), ("tool refund", "old")):
            limits.waits(name, operation, 1_000, nothing)
        assert limits.wait(LimitedCall("charge"), "new") is None, "who waits for the tool is not in its way"
        limits.waits("service bank", "old", 1_000, nothing)
        assert limits.wait(LimitedCall("refund"), "old") is None
        assert limits.wait(LimitedCall("charge"), "new").name == "service bank"
        limits.leave("old")
        assert limits.wait(LimitedCall("charge"), "new") is None


@virtual
async def test_a_service_that_asks_for_a_pause_gets_it_from_all_of_its_tools_in_all_processes(lab: Lab):
    service = Service(lab, 0.001)
    service.raises = [NotSent("busy", retry_after=20)]
    desk = shop(service)
    declared = DeclaredLimits(services=service_limit())
    async with lab.app(desk, hold_ms=10**9, queues=declared) as one, lab.app(desk, hold_ms=10**9) as two:
        first = one.start(desk, "charge-ann")
        await lab.pass_time(seconds=1)
        await known_to_all(two)
        second = two.start(desk, "refund-bob")
        assert await second.result() == "charged refund-bob"
        assert await first.result() == "charged charge-ann"
    assert service.began[0] < 1
    assert min(service.began[1:]) >= 20


@virtual
async def test_each_tenant_has_its_share_of_a_service(lab: Lab):
    service = Service(lab, 10)
    desk = shop(service)
    acme = TenantLimits(services={"bank": CallLimit(at_once=3)})
    others = TenantLimits(services={"bank": CallLimit(at_once=1)}, tools={"refund": CallLimit(at_once=1)})
    declared = DeclaredLimits(tenants={"acme": acme, "*": others}, services=service_limit(at_once=9))
    async with lab.app(desk, queues=declared, recover=True) as app:
        for number in range(4):
            for tenant in ("acme", "zeta", "omni"):
                await app.submit(desk, f"charge-{tenant}-{number}", tenant=tenant)
        app.start(desk, "charge-own")
        app.start(desk, "charge-own-too")
        await lab.pass_time(seconds=5)
        held = {use.name: len(use.permits) for use in await limit_uses(lab.journal)}
        listed = {one.name: (one.in_use, one.next_ms) for one in await list_calls(lab.journal, declared)}
        assert listed["service bank"] == (6, 0)
        assert listed["service bank / tenant acme"] == (3, None)
        assert listed["service bank / tenant zeta"] == (1, None)
        assert held == {
            "service bank": 6,
            "service bank / no tenant": 1,
            "service bank / tenant acme": 3,
            "service bank / tenant omni": 1,
            "service bank / tenant zeta": 1,
        }
        await lab.pass_time(minutes=1)
        assert len(service.began) == 14


@virtual
async def test_what_waits_for_a_share_says_for_which(lab: Lab):
    service = Service(lab, 0.01)
    desk = shop(service)
    declared = DeclaredLimits(
        tenants={"*": TenantLimits(services={"bank": CallLimit(rate="1/hour")})}, services=service_limit()
    )
    async with lab.app(desk, queues=declared, recover=True) as app:
        for name in ("ann", "bob"):
            await app.submit(desk, f"charge-{name}", tenant="acme")
        await lab.pass_time(minutes=1)
        lines = await lab.journal.runs(status="suspended")
        assert [b"the limit of service bank / tenant acme is reached" in line.waits for line in lines] == [True]
