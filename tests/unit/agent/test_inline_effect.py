"""`run.effect`: an effect that is written where it happens is an operation, and its block is entered when it is due."""

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    Ambiguous,
    DidNotHappen,
    Happened,
    Key,
    NotSent,
    Operation,
    OperationFailed,
    Rejected,
    Run,
    RunSuspended,
    Secret,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.agent.inline_effect import inline_tool
from beforehand.errors import (
    ContractError,
    OutcomeUnknown,
    OutsideRun,
    ParameterMismatch,
    ReplayDiverged,
    RunStopped,
    UsageError,
)
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)


def charging(lab: Lab, *, block: Any = None, pause: bool = True, **clauses: Any) -> Any:
    """An agent with one inline effect, after which it waits for an hour, so that it is driven twice."""

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> Any:
        charge = run.effect("charge", {"cents": 9 if lab.changed else 5}, **clauses)
        async for attempt in charge:
            async with attempt:
                if block is not None:
                    attempt.result = await block(attempt)
                else:
                    lab.sent.append("paid")
                    attempt.result = {"id": attempt.number}
        if pause:
            await run.sleep(HOUR)
        return charge.result

    return desk


async def twice(lab: Lab, desk: Any) -> Any:
    await lab.until_suspended(desk, "x")
    await lab.pass_time(hours=2)
    async with lab.app(desk) as app:
        return await app.run(desk, "x")


@virtual
async def test_the_block_is_entered_once_and_the_result_is_the_recorded_one(lab: Lab):
    assert await twice(lab, charging(lab)) == {"id": 1}
    assert lab.sent == ["paid"]
    kinds = [type(one).__name__ for one in lab.records("r-x")]
    assert kinds.index("AttemptStarted") < kinds.index("OperationSettled")
    (started,) = lab.of("r-x", r.AttemptStarted)
    assert started.step == "charge#1"
    assert started.intent.late


@virtual
async def test_the_intent_is_durable_before_the_block_begins(lab: Lab):
    async def block(_: Any) -> None:
        lab.sent += [one.step for one in lab.durable("r-x") if isinstance(one, r.AttemptStarted)]

    desk = charging(lab, block=block, pause=False)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") is None
    assert lab.sent == ["charge#1"]


@virtual
async def test_steps_around_it_keep_their_names_and_several_effects_are_numbered(lab: Lab):
    @tool
    async def mail(to: str) -> None:
        lab.sent.append(to)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> None:
        async def one(cents: int, step: str | None = None) -> None:
            async for attempt in run.effect("charge", {"cents": cents}).options(step=step):
                async with attempt:
                    lab.sent.append(str(cents))

        await mail("ann")
        await one(1)
        await one(2)
        await run.gather(one(3), one(4))
        await one(5, "the-last")
        await mail("bob")
        await run.sleep(HOUR)

    assert await twice(lab, desk) is None
    steps = {started.step for started in lab.of("r-x", r.AttemptStarted)}
    assert steps == {"mail#1", "charge#1", "charge#2", "~1/charge#1", "~2/charge#1", "the-last", "mail#2"}
    assert lab.sent == ["ann", "1", "2", "3", "4", "5", "bob"]


@virtual
async def test_a_block_that_proves_that_nothing_was_sent_is_entered_again(lab: Lab):
    async def block(attempt: Any) -> str:
        lab.sent.append(f"attempt {attempt.number}")
        if attempt.number < 3:
            raise NotSent("the system is down")
        return "paid"

    assert await twice(lab, charging(lab, block=block)) == "paid"
    assert lab.sent == ["attempt 1", "attempt 2", "attempt 3"]


@virtual
async def test_a_later_attempt_may_come_in_a_later_process(lab: Lab):
    async def block(attempt: Any) -> str:
        lab.sent.append(f"attempt {attempt.number}")
        if attempt.number == 1:
            raise NotSent("the system is down", retry_after=3600)
        return "paid"

    assert await twice(lab, charging(lab, block=block, pause=False)) == "paid"
    assert lab.sent == ["attempt 1", "attempt 2"]


@virtual
async def test_a_keyed_effect_is_sent_again_under_the_same_key(lab: Lab):
    async def block(attempt: Any) -> str:
        lab.sent.append(attempt.key)
        if attempt.number == 1:
            raise ConnectionResetError("the connection broke")
        return "paid"

    assert await twice(lab, charging(lab, block=block, idempotency=Key.forever())) == "paid"
    assert len(lab.sent) == 2
    assert len(set(lab.sent)) == 1


@virtual
async def test_a_keyed_block_that_never_reads_its_key_is_not_sent_again(lab: Lab):
    async def block(_: Any) -> str:
        lab.sent.append("paid")
        raise ConnectionResetError("the connection broke")

    desk = charging(lab, block=block, idempotency=Key.forever())
    await lab.until_suspended(desk, "x")
    assert lab.sent == ["paid"]


@virtual
async def test_a_block_that_ends_ambiguously_is_never_entered_again_and_a_person_is_asked(lab: Lab):
    async def block(_: Any) -> str:
        lab.sent.append("paid")
        raise RuntimeError("the answer was cut off")

    desk = charging(lab, block=block, pause=False)
    for _ in range(2):
        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended, match="r-x/charge#1"):
                await app.run(desk, "x")
    async with lab.app(desk) as app:
        (row,) = await app.engine.journal.runs(run="r-x")
        assert b"charge#1" in row.waits
        await app.service.resolve("r-x/charge#1", "happened", by="ann", result={"id": 7})
        assert await app.run(desk, "x") == {"id": 7}
    assert lab.sent == ["paid"]


@virtual
async def test_a_process_that_dies_in_the_block_leaves_an_unknown_outcome(lab: Lab):
    async def block(_: Any) -> str:
        lab.sent.append("paid")
        await asyncio.get_running_loop().create_future()
        return "never"

    desk = charging(lab, block=block, pause=False)
    app = await lab.make(desk).open()
    ending = app.start(desk, "x")
    await lab.pass_time(seconds=1)
    await lab.bury(app, lab.processes[-1])
    assert not ending.done() or lab.sent == ["paid"]
    async with lab.app(desk) as second:
        with pytest.raises(RunSuspended, match="charge#1"):
            await second.run(desk, "x")
    assert lab.sent == ["paid"]


@pytest.mark.parametrize("landed", [True, False])
@virtual
async def test_an_effect_that_was_cut_off_is_verified(lab: Lab, landed: bool):
    async def in_books(operation: Operation[Any], cents: int) -> Verdict[Any]:
        assert cents == 5
        return Happened({"id": operation.marker}) if landed else DidNotHappen()

    async def block(attempt: Any) -> dict[str, str]:
        lab.sent.append(current_operation().marker)
        if attempt.number == 1:
            raise RuntimeError("the answer was cut off")
        return {"id": "second"}

    desk = charging(lab, block=block, verify=in_books, settle_window=timedelta(0))
    found = await twice(lab, desk)
    assert found == ({"id": lab.sent[0]} if landed else {"id": "second"})
    assert len(lab.sent) == (1 if landed else 2)


@pytest.mark.parametrize("cancelled", [False, True])
@virtual
async def test_the_verifier_of_an_effect_that_a_dead_process_made_comes_with_the_code(lab: Lab, cancelled: bool):
    async def in_books(operation: Operation[str]) -> Verdict[str]:
        return Happened("found")

    async def block(_: Any) -> str:
        lab.sent.append("paid")
        await asyncio.get_running_loop().create_future()
        return "never"

    desk = charging(lab, block=block, pause=False, verify=in_books, settle_window=timedelta(0))
    app = await lab.make(desk).open()
    app.start(desk, "x")
    await lab.pass_time(seconds=1)
    await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as second:
        if cancelled:  # a run that is ending calls no code, so a person has to look
            await second.service.cancel("r-x", by="ann")
            with pytest.raises(RunStopped, match="cancel"):
                await second.run(desk, "x")
            history = await second.service.history("r-x")
            assert history.operations["charge#1"].phase == "unknown"
        else:
            assert await second.run(desk, "x") == "found"
    assert lab.sent == ["paid"]


@virtual
async def test_a_refusal_is_raised_by_the_loop_and_again_on_replay(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        charge = run.effect("charge", {"cents": 5})
        try:
            async for attempt in charge:
                async with attempt:
                    lab.sent.append("asked")
                    raise Rejected("the card is blocked", code="blocked")  # noqa: TRY301 - as a client does
        except Rejected as no:
            with pytest.raises(UsageError, match="no outcome yet"):
                _ = charge.result
            await run.sleep(HOUR)
            return f"{no.code}: {no.message}"
        return "paid"

    assert (await twice(lab, desk)).startswith("blocked: ")
    assert lab.sent == ["asked"]


@virtual
async def test_an_unknown_outcome_can_be_raised(lab: Lab):
    async def block(_: Any) -> None:
        raise Ambiguous("the answer was cut off")

    desk = charging(lab, block=block, on_unknown="raise")
    async with lab.app(desk) as app:
        with pytest.raises(OutcomeUnknown):
            await app.run(desk, "x")


@virtual
async def test_a_plain_with_is_refused_before_anything_is_sent(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async with run.effect("charge", {"cents": 5}):
            lab.sent.append("paid")

    async with lab.app(desk) as app:
        with pytest.raises(UsageError, match="is not a block") as error:
            await app.run(desk, "x")
    assert "async for attempt in effect" in error.value.next_step
    assert lab.sent == []


@virtual
async def test_a_loop_without_the_block_is_reported_and_never_repeated(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async for _ in run.effect("charge", {"cents": 5}):
            lab.sent.append("paid")

    async with lab.app(desk) as app:
        with pytest.raises(UsageError, match="without its block"):
            await app.run(desk, "x")
    assert lab.sent == ["paid"]


@virtual
async def test_a_loop_without_the_block_that_outlasts_its_time_limit_is_not_repeated(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async for _ in run.effect("charge", {"cents": 5}, timeout=timedelta(seconds=5)):
            lab.sent.append("paid")
            await asyncio.sleep(60)

    async with lab.app(desk) as app:
        with pytest.raises((UsageError, RunSuspended)):
            await app.run(desk, "x")
        history = await app.service.history("r-x")
        assert history.operations["charge#1"].phase == "unknown"
    assert lab.sent == ["paid"]


@virtual
async def test_an_interrupt_is_raised_although_the_time_limit_ended_the_block(lab: Lab):
    async def block(_: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Stop from None

    class Stop(BaseException):
        pass

    desk = charging(lab, block=block, timeout=timedelta(seconds=5), on_unknown="raise")
    async with lab.app(desk) as app:
        with pytest.raises(BaseException) as error:
            await app.run(desk, "x")
    assert not isinstance(error.value, OutcomeUnknown)


@virtual
async def test_an_attempt_is_entered_once(lab: Lab):
    async def block(attempt: Any) -> str:
        with pytest.raises(UsageError, match="nothing was sent for the second"):
            async with attempt:
                pass
        return "paid"

    desk = charging(lab, block=block, pause=False)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "paid"


@virtual
async def test_steps_of_the_run_are_refused_in_the_block_and_named_again_after_it(lab: Lab):
    @tool
    async def mail(to: str) -> None:
        lab.sent.append(to)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        async for attempt in run.effect("charge", {"cents": 5}):
            async with attempt:
                assert current_operation().id == "r-x/charge#1"
                with pytest.raises(OutsideRun):
                    await mail("ann")
                with pytest.raises(UsageError):
                    await run.now()
                with pytest.raises(OutsideRun):
                    async for _ in run.effect("refund", {}):
                        pass
        with pytest.raises(OutsideRun):
            current_operation()
        await mail("bob")
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "done"
    assert lab.sent == ["bob"]


@virtual
async def test_other_arguments_diverge(lab: Lab):
    desk = charging(lab)
    await lab.until_suspended(desk, "x")
    await lab.pass_time(hours=2)
    lab.changed = True
    async with lab.app(desk) as app:
        with pytest.raises((ReplayDiverged, ParameterMismatch), match=r"charge#1"):
            await app.run(desk, "x")
    assert lab.sent == ["paid"]


@virtual
async def test_the_time_limit_of_an_attempt_ends_its_block(lab: Lab):
    async def block(_: Any) -> None:
        lab.sent.append("paid")
        try:
            await asyncio.sleep(3600)
        finally:
            lab.sent.append("ended")

    desk = charging(lab, block=block, timeout=timedelta(seconds=5))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="charge#1"):
            await app.run(desk, "x")
    assert lab.sent == ["paid", "ended"]


@virtual
async def test_a_block_that_answers_as_its_time_ends_is_believed(lab: Lab):
    async def block(attempt: Any) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise NotSent("it was still waiting for a connection") from None
        return "never"

    desk = charging(lab, block=block, pause=False, timeout=timedelta(seconds=5), retry=Retry(attempts=1))
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed):
            await app.run(desk, "x")


@virtual
async def test_a_time_limit_of_the_run_cuts_the_block_and_does_so_again_on_replay(lab: Lab):
    async def in_books(operation: Operation[Any]) -> Verdict[Any]:
        return Happened("paid")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=5)):
                async for attempt in run.effect("charge", {"cents": 5}, verify=in_books, settle_window=timedelta(0)):
                    async with attempt:
                        lab.sent.append("paid")
                        await asyncio.sleep(3600)
        except TimeoutError:
            await run.sleep(HOUR)
            return "cut"
        return "paid"

    assert await twice(lab, desk) == "cut"
    assert lab.sent == ["paid"]


def test_a_verifier_belongs_to_the_effect_that_declares_it_alone():
    """Two effects of one name may stand in one program: the verifier of one says nothing about the other."""
    verified = inline_tool("charge", {"cents": 5}, lambda operation, cents: DidNotHappen(), timedelta(0), {})
    plain = inline_tool("charge", {"cents": 5}, None, None, {})
    assert (verified.contract.verifies, plain.contract.verifies) == (True, False)


@virtual
async def test_a_sibling_that_fails_cuts_the_block_as_a_crash_would(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def charge() -> None:
            async for attempt in run.effect("charge", {"cents": 5}):
                async with attempt:
                    lab.sent.append("paid")
                    await asyncio.sleep(3600)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError("no such order")

        try:
            await run.gather(charge(), fail())
        except LookupError:
            return "failed"
        return "paid"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="charge#1"):
            await app.run(desk, "x")
        await app.service.resolve("r-x/~1/charge#1", "did_not_happen", by="ann")
        await app.run(desk, "x")
    assert lab.sent == ["paid"]


@virtual
async def test_an_approval_is_asked_before_the_block(lab: Lab):
    desk = charging(lab, pause=False, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may charge"):
            await app.run(desk, "x")
        assert lab.sent == []
        await app.service.approve("r-x/charge#1", by="ann")
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == {"id": 1}
    assert lab.sent == ["paid"]


@virtual
async def test_in_a_transaction_it_is_compensated_or_says_that_it_cannot_be_undone(lab: Lab):
    @tool
    async def give_back(operation: Operation[Any], cents: int) -> None:
        lab.sent.append(f"back {cents}")

    @agent(run_id="r-{name}", tools=[give_back])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("buy"):
                settings: dict[str, Any] = {"compensate": give_back} if name == "undo" else {"hold": name != "stay"}
                async for attempt in run.effect("charge", {"cents": 5}).options(**settings):
                    async with attempt:
                        lab.sent.append("paid")
                raise LookupError("sold out")
        except TransactionAborted as aborted:
            return f"{type(aborted.__cause__).__name__}"
        return "bought"

    async with lab.app(desk) as app:
        assert await app.run(desk, "undo") == "LookupError"
        assert lab.sent == ["paid", "back 5"]
        assert await app.run(desk, "stay") == "LookupError"
        assert await app.run(desk, "held") == "MustHold"
    assert lab.sent == ["paid", "back 5", "paid"]


@virtual
async def test_clauses_that_do_not_exist_and_reads_are_refused(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(ContractError, match="does not take key"):
            run.effect("charge", {"cents": 5}, key="a")
        with pytest.raises(ContractError, match="it is for writes"):
            run.effect("charge", {"cents": 5}, effect="read")
        with pytest.raises(ContractError, match="'euros', which charge does not have"):
            run.effect("charge", {"cents": 5}, claim="euros")
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "done"


@virtual
async def test_secrets_can_be_revealed_in_the_block(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    value = secrets.token_hex(16)
    monkeypatch.setenv("PAY_TOKEN", value)

    async def block(_: Any) -> str:
        lab.sent.append(Secret("PAY_TOKEN").reveal())
        return "paid"

    assert await twice(lab, charging(lab, block=block)) == "paid"
    assert lab.sent == [value]
    assert value.encode() not in lab.everything()
