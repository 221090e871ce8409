"""Calls that wait for one limit in one process: how long each of them waits, in which order, and who is woken."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from beforehand import Run, agent
from beforehand.engine.call_limits import CallLimits
from beforehand.journal.port import ReleaseRequest
from beforehand.queues.call_limits import CallLimit, LimitedCall, ModelLimit
from beforehand.queues.limits import DeclaredLimits
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual

TOOL, MODEL = LimitedCall("charge"), LimitedCall(models=("acme/big",), tokens=5)
POLL_MS = 250


@agent(run_id="r-{name}", tools=[])
async def desk(run: Run, name: str) -> str:
    return name


def declared(limit: CallLimit) -> DeclaredLimits:
    if isinstance(limit, ModelLimit):
        return DeclaredLimits(models={"acme/big": limit})
    return DeclaredLimits(tools={"charge": limit})


def waiting(limits: CallLimits, name: str, *operations: str, ms: int = 10**9) -> list[str]:
    """Let these operations wait for the limit of that name, in this order; those that are woken."""
    woken: list[str] = []
    for one in operations:
        limits.waits(name, one, ms, partial(woken.append, one))
    return woken


MINUTE = CallLimit(rate="1/minute")
ONE = CallLimit(at_once=1)
WAITS: list[tuple[CallLimit, int, float, int]] = [
    # the limit, how many wait in front, how many seconds later, and the milliseconds to wait
    (MINUTE, 0, 0, 60_000), (MINUTE, 0, 20, 40_000), (MINUTE, 0, 60, 0), (MINUTE, 0, 70, 0),
    (MINUTE, 1, 0, 60_000), (MINUTE, 1, 20, 60_000), (MINUTE, 2, 20, 120_000), (MINUTE, 3, 70, 180_000),
    (CallLimit(rate="600/minute"), 1, 0, 250), (CallLimit(rate="600/minute"), 4, 0, 400),
    (ONE, 0, 0, 250), (ONE, 0, 0.1, 150), (ONE, 0, 0.25, 0), (ONE, 0, 9, 0),
    (ONE, 1, 0, 250), (ONE, 1, 9, 250), (ONE, 7, 0, 250), (ONE, 8, 0, 500), (ONE, 15, 9, 500), (ONE, 16, 9, 750),
    (CallLimit(at_once=1, rate="1/minute"), 2, 50, 120_000),
    (ModelLimit(tokens="60/minute"), 0, 0, 5_000), (ModelLimit(tokens="60/minute"), 1, 0, 5_000),
    (ModelLimit(tokens="60/minute"), 3, 2, 15_000),
]  # fmt: skip


@pytest.mark.parametrize("ranked", [True, False], ids=["last in the row", "newly come"])
@pytest.mark.parametrize(("limit", "in_front", "after_s", "waits_ms"), WAITS, ids=str)
@virtual
async def test_a_call_waits_for_the_limit_and_for_those_in_front_of_it(
    lab: Lab, limit: CallLimit, in_front: int, after_s: float, waits_ms: int, ranked: bool
):
    """Others follow behind it, and change nothing."""
    call = MODEL if isinstance(limit, ModelLimit) else TOOL
    name = "tokens of acme/big" if isinstance(limit, ModelLimit) else "tool charge"
    async with lab.app(desk, queues=declared(limit), poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        await lab.pass_time(seconds=1)  # after it has heard of its own declaration it looks at them anew
        assert limits.wait(call, "mine") is None
        assert await limits.take(call, "first") is not None
        assert await limits.take(call, "refused") is None
        waiting(limits, name, *(f"front {number}" for number in range(in_front)))
        if ranked:
            waiting(limits, name, "mine", "behind", "also behind")
        await lab.pass_time(seconds=after_s)
        wait = limits.wait(call, "mine")
        assert (wait.ms if wait is not None else 0) == waits_ms
        assert wait is None or (wait.name, wait.hung) == (name, 0)


@pytest.mark.parametrize(("after_ms", "in_front"), [(1_000, 1), (3_000, 1), (3_001, 0), (9_000, 0)])
@virtual
async def test_a_waiter_that_does_not_come_back_keeps_its_place_for_two_seconds_more(
    lab: Lab, after_ms: int, in_front: int
):
    async with lab.app(desk, queues=declared(MINUTE), poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        assert await limits.take(TOOL, "first") is not None
        assert await limits.take(TOOL, "refused") is None
        waiting(limits, "tool charge", "gone", ms=1_000)
        waiting(limits, "tool charge", "mine")
        await lab.pass_time(seconds=60)
        limits.leave("gone")  # as if it had begun to wait a minute later
        waiting(limits, "tool charge", "late", ms=1_000)
        await lab.pass_time(seconds=after_ms / 1000)
        wait = limits.wait(TOOL, "newly come")
        assert wait is not None
        assert wait.ms == 60_000 * (1 + in_front)
        if not in_front:  # it waits again as one that comes last
            waiting(limits, "tool charge", "other", "late")
            wait = limits.wait(TOOL, "other")
            assert wait is not None
            assert wait.ms == 60_000


@virtual
async def test_an_operation_keeps_its_rank_while_it_waits_for_one_limit_after_the_other(lab: Lab):
    """Until it leaves: then those that came later go first."""
    two = DeclaredLimits(tools={"charge": ONE, "mail": ONE})
    async with lab.app(desk, queues=two, poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        for tool in ("charge", "mail"):
            assert await limits.take(LimitedCall(tool), f"first of {tool}") is not None
            assert await limits.take(LimitedCall(tool), "refused") is None
        waiting(limits, "tool charge", "a", "b")
        waiting(limits, "tool mail", "c")
        waiting(limits, "tool charge", "a")  # its time is over, and it waits on: its place is the same
        assert list(limits.known["tool charge"].waiting) == ["a", "b"]
        waiting(limits, "tool mail", "b")
        assert [list(limits.known[f"tool {name}"].waiting) for name in ("charge", "mail")] == [["a"], ["c", "b"]]
        await lab.pass_time(seconds=1)
        ahead = {one: limits.wait(LimitedCall("mail"), one) for one in ("a", "b", "c")}
        assert {one: wait is not None for one, wait in ahead.items()} == {"a": False, "b": False, "c": True}
        limits.leave("b")
        assert limits.wait(LimitedCall("mail"), "c") is None
        waiting(limits, "tool mail", "b")
        assert limits.wait(LimitedCall("mail"), "b") is not None, "it has come back behind the others"


@pytest.mark.parametrize("rate", ["1/hour", ""])
@virtual
async def test_those_who_wait_are_called_one_after_the_other_and_each_once(lab: Lab, rate: str):
    limit = CallLimit(at_once=1, rate=rate)
    async with lab.app(desk, queues=declared(limit), poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        permit = await limits.take(TOOL, "first")
        assert permit is not None
        assert await limits.take(TOOL, "refused") is None
        woken = waiting(limits, "tool charge", "a", "b", "c")
        limits.release(permit)
        await lab.pass_time(seconds=0.1)
        if rate:
            assert woken == [], "the rate permits none yet"
            return
        assert woken == ["a"]
        assert limits.wait(TOOL, "a") is None
        assert limits.wait(TOOL, "b") is not None
        limits.leave("a")
        assert woken == ["a", "b"], "the one that was called does not wait any more"
        second = await limits.take(TOOL, "b")
        assert second is not None
        assert woken == ["a", "b"], "its slot is taken"
        limits.release(second)
        await lab.pass_time(seconds=0.1)
        assert woken == ["a", "b", "c"]
        limits.leave("c")
        assert woken == ["a", "b", "c"]


@virtual
async def test_other_limits_wake_everyone_who_waits(lab: Lab):
    async with lab.app(desk, queues=declared(MINUTE), poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        assert await limits.take(TOOL, "first") is not None
        assert await limits.take(TOOL, "refused") is None
        woken = waiting(limits, "tool charge", "a", "b")
        limits.look_again()
        assert woken == ["a", "b"]
        assert limits.wait(TOOL, "a") is None


@pytest.mark.parametrize(
    ("limit", "known"),
    [(CallLimit(at_once=3), False), (CallLimit(rate="1/second", burst=3), False), (CallLimit(at_once=2), True), (MINUTE, True)],
    ids=str,
)  # fmt: skip
@virtual
async def test_nothing_is_known_of_a_limit_under_which_no_call_has_to_wait(lab: Lab, limit: CallLimit, known: bool):
    async with lab.app(desk, queues=declared(limit), poll_ms=POLL_MS) as app:
        limits = app.engine.limits
        permits = [await limits.take(TOOL, name) for name in "ab"]
        assert list(limits.known) == ["tool charge"] * known
        for permit in permits:
            if permit is not None:
                limits.release(permit)
        await lab.pass_time(minutes=3)
        assert limits.wait(TOOL, "c") is None


@pytest.mark.parametrize("granted", [True, False])
@virtual
async def test_a_permit_that_was_refused_is_not_given_back_once_more(lab: Lab, granted: bool):
    released: list[Any] = []
    async with lab.app(desk, queues=declared(ONE), poll_ms=POLL_MS) as app:
        limits = app.engine.limits

        async def release(request: ReleaseRequest, commit: Commit) -> None:
            released.append(request.permit.operation)
            await commit(request)

        intercept(lab.journal, ReleaseRequest, release)
        assert await limits.take(TOOL, "r-ann/charge#1") is not None
        assert await limits.take(TOOL, "r-bob/charge#1") is None
        await limits.release_rest({"r-ann"} if granted else ())
        assert released == ([] if granted else ["r-ann/charge#1"])
