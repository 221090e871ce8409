"""What code is told is durable by then, except where losing it costs no more than asking the service again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Key, NotSent, Operation, Rejected, Run, Verdict, agent, current_operation, tool
from beforehand.errors import Interrupted, RunSuspended
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.outcome import DidNotHappen, Happened
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)
AT_ONCE = Retry(attempts=3, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=1))


def durable(lab: Lab, kind: type[Any]) -> list[Any]:
    """What would be left if the process died now."""
    found = [decode(row.body) for row in lab.journal._runs["r-ann"].rows]
    return [record for record in found if isinstance(record, kind)]


def answers(*given: object) -> Callable[[], str]:
    """One after another: what is raised, or returned after the key was read; a dot in front leaves the key alone."""
    left = list(given)

    def answer() -> str:
        one = left.pop(0)
        if not (isinstance(one, str) and one.startswith(".")) and not getattr(one, "blind", False):
            _ = current_operation().key
        if isinstance(one, Exception):
            raise one
        return str(one)

    return answer


def blind(error: Exception) -> Exception:
    """The tool raised it before it had read its key."""
    error.blind = True  # type: ignore[attr-defined]  # read back by `answers`
    return error


KEYED: dict[str, Any] = {"idempotency": Key.forever(), "retry": AT_ONCE}


@pytest.mark.parametrize(
    ("clauses", "given", "waits"),
    [
        ({}, ["sent"], True),
        (KEYED, ["sent"], False),
        (KEYED, [Rejected("no")], True),
        (KEYED, [NotSent("busy"), Rejected("no")], True),
        (KEYED, [".sent"], True),
        (KEYED, [blind(NotSent("busy")), "sent"], False),
        (KEYED, [Ambiguous("cut"), ".sent"], True),
    ],
    ids=["plain", "keyed", "refused", "refused later", "key unread", "unread where nothing was sent", "unread later"],
)
@virtual
async def test_an_outcome_that_nobody_could_ask_for_again_is_durable(
    lab: Lab, clauses: dict[str, Any], given: list[object], waits: bool
):
    answer, stored = answers(*given), list[bool]()

    @tool(**clauses)
    async def send(to: str) -> str:
        return answer()

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        outcome = await send.outcome(name)
        stored.append(bool(durable(lab, r.OperationSettled)))
        return outcome.status

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") in {"succeeded", "failed"}
    assert stored == [waits]


@virtual
async def test_a_success_after_an_attempt_without_its_key_is_durable(lab: Lab):
    """A person had it sent again: the system cannot be asked under the key about what was sent without it."""
    answer, stored = answers(blind(Ambiguous("cut")), "sent"), list[bool]()

    @tool(**KEYED)
    async def send(to: str) -> str:
        return answer()

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        sent = await send(name)
        stored.append(any(one.status == "succeeded" for one in durable(lab, r.OperationSettled)))
        return sent

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.resolve("r-ann/send#1", "retry", by="eve")
        assert await app.run(desk, "ann") == "sent"
    assert stored == [True]


@virtual
async def test_a_success_that_can_be_read_back_rides_although_its_key_was_not_read(lab: Lab):
    answer, stored = answers(".sent"), list[bool]()

    @tool(**KEYED)
    async def send(to: str) -> str:
        return answer()

    @send.verify(settle_window=SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened("sent")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        sent = await send(name)
        stored.append(bool(durable(lab, r.OperationSettled)))
        return sent

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == ".sent"
    assert stored == [False]


@virtual
async def test_a_refusal_that_settles_nothing_is_durable_before_anything_is_read_back(lab: Lab):
    """Losing it would send once more what was refused."""
    answer, seen = answers(Ambiguous("no answer"), Rejected("no")), list[list[str]]()

    @tool(idempotency=Key.forever(stores="success"), retry=AT_ONCE)
    async def send(to: str) -> str:
        return answer()

    @send.verify(settle_window=60 * SECOND, every=SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        if operation.attempts == 2:
            seen.append([record.end.kind for record in durable(lab, r.AttemptEnded)])
            return Happened("it was there")
        return DidNotHappen("not there")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "ann") == "it was there"
    assert seen == [["ambiguous", "rejected"]]


@virtual
async def test_how_calls_ended_is_durable_when_a_message_calls_the_rest_off(lab: Lab):
    """Nothing was sent, and only this process knows that: what is told lets go of it."""
    told: list[list[str]] = []

    @tool(retry=Retry(attempts=5, base=60 * SECOND, cap=60 * SECOND))
    async def send(to: str) -> str:
        raise NotSent("busy")

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        try:
            await send(name)
        except Interrupted:
            told.append([one.status for one in durable(lab, r.OperationSettled)])
        return "told"

    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        await app.service.tell("r-ann", "stop that", by="eve")
        assert await handle.result() == "told"
    assert told == [["cancelled"]]
