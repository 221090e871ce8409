"""Limits of calls as tables: a rate that is changed, a `Retry-After`, and how much a call of a model counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from beforehand import Key, NotSent, Run, agent, tool
from beforehand.engine.call_limits import RecordedLimits
from beforehand.errors import ModelError
from beforehand.journal.cells import limit_uses
from beforehand.journal.port import Permit, PermitAnswer, PermitRequest, Post, ReleaseRequest, SlowRequest, Worker
from beforehand.model.usage import Usage
from beforehand.queues.call_limits import CallLimit, LimitedCall, ModelLimit, ServiceLimit
from beforehand.queues.limits import STREAM, DeclaredLimits, TenantLimits
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_call_limits import Service, charging, known_to_all, limit
from tests.unit.engine.test_model_limits import Reply

# --- rates, on the port of the journal -------------------------------------------------------------------------------


async def permit(lab: Lab, limit: CallLimit, units: int = 1) -> PermitAnswer:
    """Ask for a permit under one limit, as one process; it is released at once."""
    await lab.journal.beat(Worker("w"), 10**9)
    asked = Permit("w", lab.clock.wall_ms())
    answer = await lab.journal.commit(PermitRequest(asked, (limit.cell("mail", units),), 0, 600_000))
    await lab.journal.commit(ReleaseRequest(asked, {"mail": None}))
    return answer


@pytest.mark.parametrize(
    ("after_s", "declared", "waits_s"),
    [
        (0, CallLimit(rate="1/second"), 60),
        (20, CallLimit(rate="1/second"), 40),
        (20, CallLimit(rate="2/second"), 20),
        (20, CallLimit(rate="4/second"), 10),
        (20, CallLimit(rate="30/minute"), 80),
        (20, CallLimit(rate="1/minute"), 2400),
        (20, CallLimit(rate="1/second", burst=11), 30),
        (20, CallLimit(rate="2/second", burst=11), 15),
        (20, CallLimit(rate="30/minute", burst=41), 0),
        (20, CallLimit(at_once=5), 0),
        (59, CallLimit(rate="1/hour"), 3600),
        (60, CallLimit(rate="1/hour"), 0),
        (70, CallLimit(rate="1/hour"), 0),
    ],
    ids=str,
)
@virtual
async def test_what_is_due_is_due_at_the_rate_in_force(lab: Lab, after_s: int, declared: CallLimit, waits_s: int):
    """Sixty calls' worth was granted at one in a second, and another limit is declared before all of it was due."""
    await lab.journal.open()
    assert (await permit(lab, CallLimit(rate="1/second"), units=60)).granted
    await lab.pass_time(seconds=after_s)
    answer = await permit(lab, declared)
    assert answer.granted == (waits_s == 0)
    if waits_s:
        assert answer.limits[0].wait_ms == waits_s * 1000
        await lab.pass_time(seconds=waits_s - 0.001)
        assert not (await permit(lab, declared)).granted
        await lab.pass_time(seconds=0.001)
        assert (await permit(lab, declared)).granted


@pytest.mark.parametrize(
    ("second_s", "used", "waits_s"),
    [(5, 0, 4), (5, 4, 8), (5, 10, 14), (5, 15, 19), (9, 0, 0), (10, 0, 9), (12, 0, 9), (12, 10, 9), (12, 15, 14)],
)
@virtual
async def test_what_a_call_did_not_use_is_given_back_while_calls_have_been_due_since(
    lab: Lab, second_s: int, used: int, waits_s: int
):
    """Two calls are estimated at ten seconds' worth each; what the first one used is known a second after the second."""
    await lab.journal.open()
    await lab.journal.beat(Worker("w"), 10**9)
    burst, first = CallLimit(rate="1/second", burst=20), Permit("w", 1)
    asked = PermitRequest(first, (burst.cell("mail", 10),), 0, 600_000)
    assert (await lab.journal.commit(asked)).granted
    await lab.pass_time(seconds=second_s)
    assert (await permit(lab, burst, units=10)).granted
    await lab.pass_time(seconds=1)
    await lab.journal.commit(ReleaseRequest(first, {"mail": used}))
    (state,) = (await permit(lab, CallLimit(rate="1/second"))).limits
    assert state.wait_ms == (waits_s or 1) * 1000, "a call that is granted is the next one's wait"


@pytest.mark.parametrize("under_way", [0, 1, 2, 3])
@pytest.mark.parametrize("asked_s", [0, 7])
@pytest.mark.parametrize(
    "declared",
    [
        CallLimit(at_once=1), CallLimit(at_once=2), CallLimit(at_once=3), CallLimit(rate="1/second"),
        CallLimit(rate="1/second", burst=2), CallLimit(at_once=3, rate="1/minute", burst=2),
    ],
    ids=str,
)  # fmt: skip
@virtual
async def test_a_reader_waits_where_the_journal_would_refuse_and_for_as_long(
    lab: Lab, declared: CallLimit, asked_s: int, under_way: int
):
    """`beforehand why` tells whether a call may begin: the journal has to give the same answer to the call itself."""
    await lab.journal.open()
    await lab.journal.beat(Worker("w"), 10**9)
    limits = DeclaredLimits(tools={"mail": declared})
    entry = await lab.journal.commit(Post(STREAM, "", b""))

    def request(number: int) -> PermitRequest:
        return PermitRequest(
            Permit("w", number), tuple(one.cell for one in limits.of_call(LimitedCall("mail"))), entry.id, 600_000
        )

    given = sum([(await lab.journal.commit(request(number))).granted for number in range(under_way)])
    if asked_s:
        await lab.journal.commit(SlowRequest(("tool mail",), asked_s * 1000))
    uses, now = await limit_uses(lab.journal), lab.journal.clock()
    wait = RecordedLimits(limits, uses, now, poll_ms=250).wait(LimitedCall("mail"))
    answer = await lab.journal.commit(request(99))
    assert answer.granted == (wait is None), f"{given} of {under_way} under way"
    if wait is not None:
        (state,) = answer.limits
        assert wait.ms == max(state.wait_ms, 250 if state.full else 0)


@pytest.mark.parametrize("there", [True, False], ids=["in the same process", "in another process"])
@pytest.mark.parametrize(
    ("declared", "begin"),
    [(CallLimit(rate="2/second"), 4), (CallLimit(rate="4/hour"), 1), (CallLimit(rate="1/day"), 1), (None, 4)],
    ids=str,
)
@virtual
async def test_calls_that_wait_compute_their_turn_anew_once_another_rate_is_declared(
    lab: Lab, there: bool, declared: CallLimit | None, begin: int
):
    service = Service(lab, 0.001)
    desk = charging(service)
    async with lab.app(desk, hold_ms=10**9) as one, lab.app(desk, hold_ms=10**9) as two:
        waits = one if there else two
        await limit(one, rate="1/hour")
        await known_to_all(two)
        await one.run(desk, "first")
        for name in "abc":
            waits.start(desk, name)
        await lab.pass_time(minutes=1)
        assert len(service.began) == 1
        tools = {} if declared is None else {"charge": declared}
        await one.engine.queues.declare(one.engine.journal, DeclaredLimits(tools=tools))
        await known_to_all(two)
        await lab.pass_time(minutes=1)
        assert len(service.began) == begin


@pytest.mark.parametrize("leaves", ["called", "behind"])
@virtual
async def test_the_next_one_is_woken_where_the_one_that_was_called_leaves(lab: Lab, leaves: str):
    call, woken = LimitedCall("charge"), list[str]()
    async with lab.app(charging(Service(lab)), queues=DeclaredLimits(tools={"charge": CallLimit(at_once=1)})) as app:
        limits = app.engine.limits
        permit = await limits.take(call, "first")
        assert permit is not None
        for name in ("called", "behind", "last"):
            assert await limits.take(call, name) is None
            limits.waits("tool charge", name, 5_000, partial(woken.append, name))
        limits.release(permit)
        await lab.pass_time(seconds=0.1)
        assert woken == ["called"]
        limits.leave(leaves)
        assert woken == (["called", "behind"] if leaves == "called" else ["called"])


# --- Retry-After -----------------------------------------------------------------------------------------------------

TOOLS = ("charge", "refund", "mail")
BANK = {"bank": ServiceLimit(tools=("charge", "refund"))}
EACH = {name: CallLimit(at_once=5) for name in TOOLS}
SHARES = {"*": TenantLimits(tools=EACH)}


@pytest.mark.parametrize("busy", TOOLS)
@pytest.mark.parametrize(
    ("declared", "together"),
    [
        (DeclaredLimits(services=BANK), ({"charge", "refund"}, set())),
        (DeclaredLimits(services=BANK, tools=EACH), ({"charge", "refund"}, {"mail"})),
        (DeclaredLimits(services={**BANK, "post": ServiceLimit(tools=("refund", "mail"))}), None),
        (DeclaredLimits(tools=EACH), ({"charge"}, {"refund"}, {"mail"})),
        (DeclaredLimits(tenants=SHARES), ({"charge"}, {"refund"}, {"mail"})),
        (DeclaredLimits(services=BANK, tenants=SHARES), ({"charge", "refund"}, {"mail"})),
    ],
    ids=["service", "service and tools", "two services", "tools", "shares", "service and shares"],
)
@virtual
async def test_a_pause_that_a_tool_was_asked_for_holds_for_the_tools_of_its_services_alone(
    lab: Lab, busy: str, declared: DeclaredLimits, together: tuple[set[str], ...] | None
):
    began: dict[str, float] = {}
    asks = [NotSent("busy", retry_after=20)]

    def made(name: str):
        async def call(run: str) -> str:
            began[run] = lab.loop.time()
            if asks:
                raise asks.pop()
            return run

        call.__name__ = call.__qualname__ = name
        return tool(idempotency=Key.forever())(call)

    tools = {name: made(name) for name in TOOLS}

    @agent(run_id="{name}", tools=list(tools.values()))
    async def desk(run: Run, name: str) -> str:
        return await tools[name.partition("-")[0]](name)

    async with lab.app(desk, hold_ms=10**9, queues=declared) as one, lab.app(desk, hold_ms=10**9) as two:
        await known_to_all(two)
        first = one.start(desk, f"{busy}-first")
        await lab.pass_time(seconds=1)
        assert asks == []
        others = [two.start(desk, f"{name}-other") for name in TOOLS]
        for run in (first, *others):
            await run.result()
    late = {name for name in TOOLS if began[f"{name}-other"] >= 20}
    if together is None:  # refund reaches both services
        assert late == {"charge": {"charge", "refund"}, "mail": {"refund", "mail"}, "refund": {*TOOLS}}[busy]
    else:
        assert late == next((some for some in together if busy in some), set())


# --- how much a call of a model counts --------------------------------------------------------------------------------


def reply(**usage) -> Callable[[], Reply]:
    return lambda: Reply("answer", Usage(model="acme/big", **usage))


def failure(error: Exception, **usage) -> Callable[[], Reply]:
    def fail() -> Reply:
        if usage:
            error.reply = reply(**usage)()  # type: ignore[attr-defined]  # as a client adds what it has received
        raise error

    return fail


@pytest.mark.parametrize("there", [True, False], ids=["in the same process", "in another process"])
@pytest.mark.parametrize(
    ("ends", "counts"),
    [
        (reply(input_tokens=200, output_tokens=100), 300),
        (reply(input_tokens=60, output_tokens=40), 100),
        (reply(input_tokens=500, output_tokens=100), 600),
        (reply(), 300),
        (reply(refused=True), 0),
        (reply(refused=True, input_tokens=100), 100),
        (failure(ModelError("busy", code="rate_limited")), 0),
        (failure(ConnectionRefusedError("down")), 0),
        (failure(ModelError("malformed", code="malformed"), input_tokens=100), 100),
        (failure(OSError("the connection was reset")), 300),
        ("cut off", 300),
        ("lost", 300),
    ],
    ids=[
        "as estimated", "fewer", "more", "not stated", "refused", "refused with tokens", "rate limited",
        "not reached", "failed with tokens", "failed", "cut off", "lost",
    ],
)  # fmt: skip
@virtual
async def test_a_call_of_a_model_counts_by_its_end(lab: Lab, there: bool, ends: Callable[[], Reply] | str, counts: int):
    """The second call is estimated at the 300 tokens of the first, and the third begins once what it counts is due."""
    began: list[float] = []

    async def ask(name: str) -> Reply:
        began.append(lab.loop.time())
        if len(began) == 2 and isinstance(ends, str):
            await asyncio.sleep(1000)
        if len(began) == 2 and not isinstance(ends, str):
            await asyncio.sleep(
                0.9 if there else 0
            )  # so the third waits when this one ends; only its own process knows
            return ends()
        return reply(input_tokens=300)()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.options(model="acme/big").decide(ask, name), 31 if name == "second" else None)
        return name

    limits = DeclaredLimits(models={"acme/big": ModelLimit(tokens="600/minute")})
    one = lab.make(desk, hold_ms=10**9, queues=limits)
    process = lab.processes[-1]
    await one.open()
    async with lab.app(desk, hold_ms=10**9) as two:
        await known_to_all(two)
        await one.run(desk, "first")
        one.start(desk, "second")
        await lab.pass_time(seconds=30.5)
        assert len(began) >= 2
        if ends == "lost":
            await lab.bury(one, process)
        third = one if there and ends != "lost" else two
        assert await third.run(desk, "third") == "third"
    if ends != "lost":
        await lab.pass_time(minutes=3)
        await one.aclose()
    assert began[2] - began[1] == pytest.approx(counts / 10, abs=3)
