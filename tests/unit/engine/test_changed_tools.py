"""A deploy between two attempts: changed contracts, tools that are gone, arguments that no longer fit."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Happened, Key, NotSent, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import ReplayDiverged, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

PATIENT = Retry(attempts=9, elapsed=timedelta(days=1), base=timedelta(minutes=5), cap=timedelta(minutes=5))


def version(lab: Lab, answers: list[Exception | str], **clauses: Any):
    """One version of the code: an agent with one write."""

    async def send(to: str) -> str:
        at = current_operation()
        lab.sent.append(at.key)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = tool(**({"retry": PATIENT} | clauses))(send)

    @agent(run_id="r-{name}", name="desk", tools=[made])
    async def desk(run: Run, name: str) -> str:
        return await made(name)

    return desk, made


@virtual
async def test_a_key_that_only_the_new_code_declares_does_not_cover_the_old_attempt(lab: Lab):
    old, _ = version(lab, [Ambiguous("no answer")])
    new, _ = version(lab, ["sent"], idempotency=Key.forever())
    await lab.until_suspended(old, "ann")
    await lab.until_suspended(new, "ann")
    assert len(lab.sent) == 1


@virtual
async def test_a_key_that_the_new_code_dropped_is_not_trusted_any_more(lab: Lab):
    old, _ = version(lab, [NotSent("busy"), Ambiguous("no answer")], idempotency=Key.forever())
    new, _ = version(lab, [Ambiguous("no answer"), "sent twice"])
    await lab.until_suspended(old, "ann")
    await lab.pass_time(minutes=6)
    await lab.until_suspended(new, "ann")
    assert len(lab.sent) == 2
    assert len({record.digest for record in lab.of("r-ann", r.ContractStored)}) >= 1


@virtual
async def test_a_verifier_that_was_added_settles_what_the_old_code_left_unknown(lab: Lab):
    old, _ = version(lab, [Ambiguous("no answer")])
    new, made = version(lab, [])

    @made.verify
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened("found")

    await lab.until_suspended(old, "ann")
    await lab.pass_time(hours=1)
    async with lab.app(new, hold_ms=10**9) as app:
        assert await app.run(new, "ann") == "found"
    assert len(lab.sent) == 1


@virtual
async def test_an_effect_whose_tool_is_gone_asks_a_person_until_it_is_back(lab: Lab):
    old, _ = version(lab, [NotSent("busy"), "sent"])

    @agent(run_id="r-{name}", name="desk", tools=[])
    async def without(run: Run, name: str) -> str:
        await run.wait_for("never")
        return "not reached"

    await lab.until_suspended(old, "ann")
    await lab.pass_time(minutes=6)
    async with lab.app(without) as app:
        with pytest.raises(RunSuspended, match="the tool send is no longer in this app"):
            await app.run(without, "ann")
        assert lab.of("r-ann", r.OperationParked)[0].rule == "tool gone"
        await app.service.resolve("r-ann/send#1", "retry", by="eve")
    async with lab.app(old) as app:
        assert await app.run(old, "ann") == "sent"
    assert len(lab.sent) == 2


@virtual
async def test_a_read_where_the_record_has_something_else(lab: Lab):
    @tool(effect="read")
    async def look(to: str) -> str:
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def look(text: str) -> str:  # a decision of the read's name
            return text

        answered = await (run.decide(look, name) if not lab.changed else reads(name))
        await run.sleep(timedelta(hours=1))
        return answered

    reads = look
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        lab.changed = True
        await lab.pass_time(hours=1)
        with pytest.raises(ReplayDiverged, match="is another read than the recorded one"):
            await app.run(desk, "ann")


@virtual
async def test_arguments_that_no_longer_fit_are_not_sent(lab: Lab):
    old, _ = version(lab, [NotSent("busy")])

    async def send(recipient: str) -> str:
        lab.sent.append("wrong")
        return "wrong"

    made = tool(retry=PATIENT)(send)

    @agent(run_id="r-{name}", name="desk", tools=[made])
    async def changed(run: Run, name: str) -> str:
        await run.wait_for("never")
        return "not reached"

    await lab.until_suspended(old, "ann")
    await lab.pass_time(minutes=6)
    async with lab.app(changed) as app:
        with pytest.raises(RunSuspended, match="its recorded arguments no longer fit the tool"):
            await app.run(changed, "ann")
    assert "wrong" not in lab.sent
    assert len(lab.of("r-ann", r.AttemptStarted)) == 1


def returning(lab: Lab, kind: Any, value: object) -> Any:
    """A desk whose tool returns this kind of thing, and is compensated with what it returned."""

    async def book(what: str) -> object:
        return value

    book.__annotations__["return"] = kind
    booked = tool(idempotency=Key.forever())(book)

    @booked.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def cancel(operation: Operation[Any]) -> None:
        _ = current_operation().key
        lab.sent.append(f"cancel {operation.result!r}")

    @agent(run_id="r-{name}", name="desk")
    async def desk(run: Run, name: str) -> str:
        await booked("room")
        return "booked"

    return desk


@virtual
async def test_a_result_that_no_longer_fits_is_not_given_to_a_compensation(lab: Lab):
    """A person is asked before anything is sent, and the mended code goes on where they say so."""
    before, changed = returning(lab, int, 17), returning(lab, tuple[int, int], (1, 7))
    async with lab.app(before) as app:
        await app.run(before, "ann")
    async with lab.app(changed) as app:
        undone = await app.undo("r-ann", by="ann")
        assert "no longer fits" in undone.waits
    (asked,) = lab.of("r-ann", r.OperationParked)
    assert not any(one.step == asked.step for one in lab.of("r-ann", r.AttemptStarted))
    async with lab.app(before) as app:
        await app.service.resolve(f"r-ann/{asked.step}", "retry", by="ann")
        undone = await app.undo("r-ann", by="ann")
    assert (undone.waits, lab.sent) == ("", ["cancel 17"])
