"""Business keys across runs: one real-world effect has one owner, and others reuse it, wait, or take the next turn."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from beforehand import Ambiguous, Key, NotSent, Operation, Rejected, Run, agent, current_operation, tool
from beforehand.errors import OperationFailed, ParameterMismatch, RunSuspended
from beforehand.journal.port import LedgerEntry
from beforehand.model import records as r
from beforehand.people import Policy
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual


class Bank:
    """Charges invoices; `answers` says what happens to each request in turn."""

    def __init__(self, lab: Lab, *answers: Exception | str) -> None:
        self.lab = lab
        self.answers = list(answers)
        self.keys: list[str] = []

    async def charge(self, seconds: float = 0) -> str:
        self.keys.append(current_operation().key)
        await self.lab.pass_time(seconds=seconds)
        answer = self.answers.pop(0) if self.answers else f"charge-{len(self.keys)}"
        if isinstance(answer, Exception):
            raise answer
        self.lab.sent.append(answer)
        return answer


def charging(bank: Bank, seconds: float = 0, **clauses: object):
    clauses = {"idempotency": Key.forever(), "claim": "invoice"} | clauses

    @tool(**clauses)
    async def charge(invoice: str, cents: int) -> str:
        return await bank.charge(seconds)

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> str:
        outcome = await charge.outcome(given["invoice"], int(given.get("cents", "100")))
        return f"{outcome.result} {outcome.reused}".strip()

    return desk


JUDGED = pytest.mark.parametrize("policy", [None, Policy("all", default="auto")], ids=["", "under a policy"])
"""A policy adds entries of its own to the commit of an attempt, beside the one that takes the key."""


def order(run: str, invoice: str = "17", **more: str) -> dict[str, str]:
    return {"run": run, "invoice": invoice, **more}


@virtual
async def test_a_success_is_reused_visibly_by_other_runs(lab: Lab):
    desk = charging(Bank(lab))
    async with lab.app(desk) as app:
        assert await app.run(desk, order("a")) == "charge-1"
        await lab.pass_time(seconds=20)
        assert await app.run(desk, order("b")) == "charge-1 a/charge#1"
        assert await app.run(desk, order("c", "18")) == "charge-2"
    assert lab.sent == ["charge-1", "charge-2"]
    reused = lab.of("b", r.OutcomeReused)[0]
    assert (reused.source, reused.step) == ("a/charge#1", "charge#1")
    assert (reused.why, reused.age_ms, reused.intent.claim) == ("claim met a success", 20_000, "17")


@virtual
async def test_other_arguments_under_one_key_are_a_mismatch(lab: Lab):
    desk = charging(Bank(lab))
    async with lab.app(desk) as app:
        await app.run(desk, order("a"))
        with pytest.raises(ParameterMismatch, match="is already a/charge#1, with other arguments"):
            await app.run(desk, order("b", cents="999"))
    assert lab.sent == ["charge-1"]


@virtual
async def test_a_mismatch_is_told_again_on_replay_although_the_key_is_free_by_then(lab: Lab):
    """Else the replay would send what the first pass was told is not sent."""
    bank = Bank(lab)

    @tool(idempotency=Key.forever(), claim="invoice")
    async def charge(invoice: str, cents: int) -> str:
        return await bank.charge()

    @charge.compensate(restores=True)
    async def refund(operation: Operation[str]) -> None:
        lab.sent.append("refund")

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> str:
        try:
            done = await charge(given["invoice"], int(given.get("cents", "1")))
        except ParameterMismatch as error:
            done = error.message
        await run.sleep(timedelta(seconds=5))
        return done

    async with lab.app(desk) as app:
        await app.run(desk, order("a"))
    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    app.start(desk, order("b", cents="999"))
    await lab.pass_time(seconds=2)
    await lab.bury(app, process)
    async with lab.app(desk) as app:
        await app.undo("a", by="ann")
        assert "is already a/charge#1, with other arguments" in await app.run(desk, order("b", cents="999"))
        settled = lab.of("b", r.OperationSettled)[-1]
    assert (settled.status, settled.code) == ("failed", "mismatch")
    assert lab.sent == ["charge-1", "refund"]


@JUDGED
@virtual
async def test_a_pending_owner_is_waited_for(lab: Lab, policy: Policy | None):
    desk = charging(Bank(lab), seconds=5)
    async with lab.app(desk, policy=policy) as app, lab.app(desk, policy=policy) as other:
        first, second = app.start(desk, order("a")), other.start(desk, order("b"))
        assert await first.result() == "charge-1"
        assert await second.result() == "charge-1 a/charge#1"
    assert lab.sent == ["charge-1"]


@JUDGED
@virtual
async def test_one_that_waited_takes_the_next_turn_and_is_reused_in_its_turn(lab: Lab, policy: Policy | None):
    """It was on record as waiting: which turn it took is on record with its attempt."""
    bank = Bank(lab, Rejected("the card is closed"))
    desk = charging(bank, seconds=5)
    async with lab.app(desk, policy=policy) as app, lab.app(desk, policy=policy) as other:
        first, second = app.start(desk, order("a")), other.start(desk, order("b"))
        with pytest.raises(Rejected):
            await first.result()
        assert await second.result() == "charge-2"
        assert await app.run(desk, order("c")) == "charge-2 b/charge#1"
    assert lab.sent == ["charge-2"]
    (attempt,) = lab.of("b", r.AttemptStarted)
    assert (attempt.intent.generation, attempt.intent.outside) == (2, 2)


@JUDGED
@virtual
async def test_two_runs_that_start_at_once_charge_once(lab: Lab, policy: Policy | None):
    desk = charging(Bank(lab))
    async with lab.app(desk, policy=policy) as app:
        results = await asyncio.gather(*(app.run(desk, order(run)) for run in "abcde"))
    assert len(lab.sent) == 1
    assert all(result.startswith("charge-1") for result in results)


@virtual
async def test_after_a_refusal_the_next_run_takes_the_next_generation_with_a_new_key(lab: Lab):
    bank = Bank(lab, Rejected("the card is closed"))
    desk = charging(bank)
    async with lab.app(desk) as app:
        with pytest.raises(Rejected):
            await app.run(desk, order("a"))
        assert await app.run(desk, order("b")) == "charge-2"
    assert len(set(bank.keys)) == 2


@virtual
async def test_a_claim_released_on_a_persons_word_keeps_its_outside_key(lab: Lab):
    bank = Bank(lab, Ambiguous("no answer"))
    desk = charging(bank, retry=Retry(attempts=1))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, order("a"))
        await app.service.resolve("a/charge#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed):
            await app.run(desk, order("a"))
        assert await app.run(desk, order("b")) == "charge-2"
    assert len(set(bank.keys)) == 1


@virtual
async def test_an_unknown_owner_is_waited_for_until_a_person_is_asked(lab: Lab):
    bank = Bank(lab, Ambiguous("no answer"))
    desk = charging(bank, retry=Retry(attempts=1))
    async with lab.app(desk, hold_ms=10**9) as app, lab.app(desk, hold_ms=10**9) as other:
        with pytest.raises(RunSuspended):
            await app.run(desk, order("a"))
        waiter = other.start(desk, order("b"))
        await lab.pass_time(minutes=5)
        planned = (await other.service.history("b")).operations["charge#1"]
        assert (planned.phase, len(planned.attempts)) == ("planned", 0)
        with pytest.raises(RunSuspended):
            await waiter.result()
        parked = (await other.service.history("b")).operations["charge#1"]
        assert parked.phase == "gated"
        assert "a/charge#1 has not been settled" in parked.reason
        await other.service.resolve("b/charge#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed):
            await other.run(desk, order("b"))
    assert len(bank.keys) == 1


@virtual
async def test_what_was_never_sent_releases_its_claim_when_it_is_called_off(lab: Lab):
    bank = Bank(lab, *[NotSent("down", retry_after=20)] * 3)
    desk = charging(bank)
    async with lab.app(desk) as app:
        handle = app.start(desk, order("a"))
        await lab.pass_time(seconds=1)
        await app.service.cancel("a", by="eve")
        with pytest.raises(Exception, match="cancelled"):
            await handle.result()
        bank.answers.clear()
        assert (await app.service.history("a")).operations["charge#1"].status == "cancelled"
        assert await app.run(desk, order("b")) == "charge-2"
    assert len(set(bank.keys)) == 1


@virtual
async def test_an_outside_key_that_another_run_used_counts_from_its_first_use(lab: Lab):
    bank = Bank(lab, Ambiguous("no answer"), Ambiguous("no answer"))
    desk = charging(bank, idempotency=Key(ttl=timedelta(hours=1)), retry=Retry(attempts=1))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, order("a"))
        await lab.pass_time(hours=2)
        await app.service.resolve("a/charge#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed):
            await app.run(desk, order("a"))
        with pytest.raises(RunSuspended):
            await app.run(desk, order("b"))
        history = await app.service.history("b")
    assert history.operations["charge#1"].phase == "unknown"
    assert len(bank.keys) == 2


@virtual
async def test_a_computed_claim_names_the_effect(lab: Lab):
    bank = Bank(lab)

    @tool(idempotency=Key.forever())
    async def charge(invoice: str, cents: int) -> str:
        return await bank.charge()

    @charge.claim
    def effect(invoice: str) -> str:
        return invoice.lower()

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> str:
        return await charge(given["invoice"], 1)

    async with lab.app(desk) as app:
        await app.run(desk, order("a", "INV"))
        with pytest.raises(ParameterMismatch):
            await app.run(desk, order("b", "inv"))
    assert lab.sent == ["charge-1"]


@virtual
async def test_two_parameters_may_name_one_effect(lab: Lab):
    bank = Bank(lab)

    @tool(idempotency=Key.forever(), claim=("invoice", "part"))
    async def charge(invoice: str, part: int) -> str:
        return await bank.charge()

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> list[str]:
        return [await charge(given["invoice"], 1), await charge(given["invoice"], 2), await charge("x", 1)]

    async with lab.app(desk) as app:
        assert len(set(await app.run(desk, order("a")))) == 3
        assert await app.run(desk, order("b")) == await app.run(desk, order("a"))
    assert len(lab.sent) == 3


@virtual
async def test_a_waiting_run_goes_on_when_a_person_settles_the_owner(lab: Lab):
    bank = Bank(lab, Ambiguous("no answer"))
    desk = charging(bank, retry=Retry(attempts=1))
    async with lab.app(desk) as app, lab.app(desk) as other:
        with pytest.raises(RunSuspended):
            await app.run(desk, order("a"))
        waiter = other.start(desk, order("b"))
        await lab.pass_time(seconds=5)
        await app.service.resolve("a/charge#1", "happened", by="eve", result="charge-9")
        assert await waiter.result() == "charge-9 a/charge#1"
        assert await app.run(desk, order("a")) == "charge-9"
    assert len(bank.keys) == 1


@virtual
async def test_a_word_that_reaches_a_driven_run_settles_its_claim_too(lab: Lab):
    bank = Bank(lab, Ambiguous("no answer"))
    desk = charging(bank, retry=Retry(attempts=1))

    @agent(run_id="{given[run]}")
    async def busy(run: Run, given: dict[str, str]) -> str:
        pause = asyncio.create_task(run.sleep(timedelta(seconds=20)))
        charged = await desk.__wrapped__(run, given)
        await pause
        return charged

    async with lab.app(desk, busy) as app:
        handle = app.start(busy, order("a"))
        await lab.pass_time(seconds=2)
        await app.service.resolve("a/charge#1", "happened", by="eve", result="charge-9")
        assert await handle.result() == "charge-9"
        assert await app.run(desk, order("b")) == "charge-9 a/charge#1"


@virtual
async def test_one_that_waits_for_another_of_its_run_is_answered_with_it_while_a_person_is_asked(lab: Lab):
    """The run is suspended for the person, and looks again only then: the next look would come too late."""
    bank = Bank(lab)

    @tool(idempotency=Key.forever(), claim="invoice")
    async def charge(invoice: str) -> str:
        return await bank.charge(seconds=1)

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> None:
        await asyncio.gather(charge(given["invoice"]), charge(given["invoice"]), run.ask("is it paid?"))

    await lab.until_suspended(desk, order("a"))
    (reused,) = lab.of("a", r.OutcomeReused)
    assert (reused.step, reused.source) == ("~2/charge#1", "a/~1/charge#1")


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept for its transaction"])
@virtual
async def test_one_of_its_run_that_ends_during_the_look_at_its_key_is_neither_asked_about_nor_missed(
    lab: Lab, kept: bool
):
    bank, entries = Bank(lab), lab.journal.entries

    async def slow_entries(stream: str) -> list[LedgerEntry]:
        read = await entries(stream)
        await lab.pass_time(seconds=3)
        return read

    @tool(idempotency=Key.forever(), claim="invoice")
    async def charge(invoice: str) -> str:
        return await bank.charge(seconds=9)

    @charge.compensate(restores=True)
    async def refund(operation: Operation[str]) -> None:
        lab.sent.append("refund")

    @agent(run_id="{given[run]}")
    async def desk(run: Run, given: dict[str, str]) -> None:
        asked = asyncio.create_task(run.ask("is it paid?"))
        async with run.transaction("pay") if kept else contextlib.nullcontext():
            await asyncio.gather(charge(given["invoice"]), charge(given["invoice"]))
        await asked

    async with lab.app(desk, claim_wait_ms=1_000) as app:
        lab.journal.entries = slow_entries  # type: ignore[method-assign]  # one look is from 11 s to 14 s; the end is at 12 s
        with pytest.raises(RunSuspended, match="is it paid"):
            await app.run(desk, order("a"))
    assert len(lab.of("a", r.OutcomeReused)) == 1
