"""Reading the world back: verdicts, settle windows, expected evidence, preconditions."""

from datetime import timedelta

import pytest

from beforehand import (
    Ambiguous,
    CannotTell,
    Conflict,
    DidNotHappen,
    Happened,
    Natural,
    Operation,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.errors import OperationFailed, PreconditionsChanged, RunSuspended
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_calls import one_call

SECOND = timedelta(seconds=1)


class Mail:
    """A mail service with a folder that shows messages after a lag. `replies` is what each send answers."""

    def __init__(self, lab: Lab, lag_s: float = 0) -> None:
        self.lab = lab
        self.lag_s = lag_s
        self.folder: list[tuple[str, float]] = []
        self.reads: list[float] = []

    def deliver(self, marker: str) -> None:
        self.folder.append((marker, self.lab.loop.time() + self.lag_s))
        self.lab.sent.append("mail")

    def shows(self, marker: str) -> bool:
        self.reads.append(self.lab.loop.time())
        return any(there == marker and at <= self.lab.loop.time() for there, at in self.folder)


def mail_tool(lab: Lab, mail: Mail, *, lands: tuple[bool, ...], settle: timedelta | None, **verify: object):
    """A write whose first attempts end without an answer; `lands` says which of them had arrived."""

    @tool
    async def send(to: str) -> str:
        at = current_operation()
        arrives = lands[at.attempt - 1] if at.attempt <= len(lands) else True
        if arrives:
            mail.deliver(at.marker)
        if at.attempt <= len(lands):
            raise Ambiguous("no answer")
        return at.marker

    @send.verify(settle_window=settle, every=5 * SECOND, **verify)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Happened(operation.marker) if mail.shows(operation.marker) else DidNotHappen("not in the folder")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    return desk


@virtual
async def test_what_landed_and_was_not_answered_is_found_and_not_sent_again(lab: Lab):
    mail = Mail(lab)
    desk = mail_tool(lab, mail, lands=(True,), settle=60 * SECOND)
    async with lab.app(desk) as app:
        assert (await app.run(desk, "ann")).endswith("@beforehand.invalid")
    assert lab.sent == ["mail"]
    assert lab.of("r-ann", r.OperationSettled)[0].basis.by == "evidence"


@pytest.mark.parametrize("lag", [1, 20, 59])
@virtual
async def test_absence_is_never_believed_before_the_settle_window_is_over(lab: Lab, lag: int):
    mail = Mail(lab, lag_s=lag)
    desk = mail_tool(lab, mail, lands=(True,), settle=60 * SECOND)
    async with lab.app(desk, hold_ms=10**9) as app:
        await app.run(desk, "ann")
    assert lab.sent == ["mail"]
    assert all(not v.believable for v in lab.of("r-ann", r.Verified) if v.verdict == "did_not_happen")


@virtual
async def test_absence_is_believed_after_the_window_and_the_effect_is_sent_once_more(lab: Lab):
    mail = Mail(lab)
    desk = mail_tool(lab, mail, lands=(False,), settle=60 * SECOND)
    async with lab.app(desk, hold_ms=10**9) as app:
        await app.run(desk, "ann")
        assert lab.loop.time() >= 60
    assert lab.sent == ["mail"]
    believed = [v for v in lab.of("r-ann", r.Verified) if v.believable]
    assert [(v.verdict, v.through) for v in believed] == [("did_not_happen", 1)]
    assert len(lab.of("r-ann", r.AttemptStarted)) == 2


@virtual
async def test_with_an_unknown_settle_window_absence_is_never_believed(lab: Lab):
    mail = Mail(lab)
    desk = mail_tool(lab, mail, lands=(False,), settle=None, deadline=timedelta(minutes=2))
    async with lab.app(desk, hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(hours=1)
        assert not handle.done()
        history = await app.service.history("r-ann")
        assert history.operations["send#1"].phase == "unknown"
        await app.service.resolve("r-ann/send#1", "did_not_happen", by="eve")
        with pytest.raises(OperationFailed):
            await handle.result()
    assert lab.sent == []


@virtual
async def test_the_window_is_waited_out_without_holding_a_process(lab: Lab):
    mail = Mail(lab)
    desk = mail_tool(lab, mail, lands=(False,), settle=timedelta(minutes=5))
    async with lab.app(desk, recover=True) as app:
        handle = app.start(desk, "ann")
        await lab.pass_time(minutes=6)
        assert (await app.service.row("r-ann")).status == "completed"
        assert handle.done()
        await handle.result()
    assert lab.sent == ["mail"]


@virtual
async def test_check_first_finds_what_somebody_sent_already(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return "new"

    @send.verify(settle_window=0 * SECOND, check_first=True)
    async def find(operation: Operation[str], to: str) -> Verdict[str]:
        return Happened("old") if to == "ann" else DidNotHappen()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return [await send("ann"), await send("bob")]

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["old", "new"]
    assert lab.sent == ["bob"]


@virtual
async def test_a_conflict_asks_a_person(lab: Lab):
    @tool
    async def reserve(seat: str) -> str:
        lab.sent.append(seat)
        raise Ambiguous("no answer")

    @reserve.verify(settle_window=0 * SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        return Conflict("the seat belongs to somebody else")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await reserve(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="the seat belongs to somebody else"):
            await app.run(desk, "4A")
    assert lab.sent == ["4A"]


@pytest.mark.parametrize("trouble", ["raises", "hangs", "not a verdict"])
@virtual
async def test_a_verifier_in_trouble_proves_nothing(lab: Lab, trouble: str):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        raise Ambiguous("no answer")

    @send.verify(settle_window=0 * SECOND, deadline=20 * SECOND, every=5 * SECOND, timeout=3 * SECOND)
    async def find(operation: Operation[str]) -> Verdict[str]:
        if trouble == "raises":
            raise OSError("the folder is closed")
        if trouble == "hangs":
            await lab.pass_time(hours=1)
        return "yes"  # type: ignore[return-value]  # the bug under test

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    await lab.until_suspended(desk, "ann")
    assert lab.sent == ["ann"]
    words = {
        "raises": "OSError: the folder is closed",
        "hangs": "no answer within 3 s",
        "not a verdict": "is not a verdict",
    }
    verified = lab.of("r-ann", r.Verified)
    assert {v.verdict for v in verified} == {"cannot_tell"}
    assert words[trouble] in verified[0].evidence


@virtual
async def test_expected_evidence_is_read_back_before_a_success_settles(lab: Lab):
    seen: list[object] = []

    @tool
    async def close(ticket: str) -> str:
        lab.sent.append(ticket)
        return "said ok"

    @close.expect
    def evidence(ticket: str) -> dict[str, str]:
        return {"status": f"{ticket} closed"}

    @close.verify(settle_window=10 * SECOND, every=2 * SECOND)
    async def look(operation: Operation[str], ticket: str) -> Verdict[str]:
        seen.append(operation.expected)
        return Happened("really closed") if len(seen) > 2 else CannotTell("lagging")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await close(name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "t1") == "said ok"
    assert seen == [{"status": "t1 closed"}] * 3
    assert lab.of("r-t1", r.OperationSettled)[0].basis.by == "evidence"


@virtual
async def test_a_success_that_is_not_there_after_the_window_is_unknown(lab: Lab):
    @tool
    async def close(ticket: str) -> str:
        lab.sent.append(ticket)
        return "said ok"

    @close.expect
    def evidence(ticket: str) -> str:
        return "closed"

    @close.verify(settle_window=10 * SECOND, every=2 * SECOND)
    async def look(operation: Operation[str]) -> Verdict[str]:
        return DidNotHappen("still open")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await close(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="returned, but not there"):
            await app.run(desk, "t1")
    assert lab.sent == ["t1"]


def observed_tool(lab: Lab, states: list[object], **clauses: object):
    """A write that relies on a state it observes; its first attempt gets no answer."""

    @tool(**clauses)
    async def close(ticket: str) -> str:
        lab.sent.append(f"{ticket} from {current_operation().observed}")
        if len(lab.sent) == 1:
            raise Ambiguous("no answer")
        return "closed"

    @close.observe
    async def state(operation: Operation[str], ticket: str) -> object:
        now = states.pop(0) if len(states) > 1 else states[0]
        if isinstance(now, Exception):
            raise now
        return now

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await close(name)

    return desk, close


@virtual
async def test_a_natural_write_is_repeated_while_its_preconditions_are_unchanged(lab: Lab):
    desk, _ = observed_tool(lab, ["open"], idempotency=Natural())
    async with lab.app(desk) as app:
        assert await app.run(desk, "t1") == "closed"
    assert lab.sent == ["t1 from open", "t1 from open"]


@pytest.mark.parametrize("after", ["closed", OSError("unreachable")])
@virtual
async def test_changed_or_unreadable_preconditions_after_an_ambiguous_attempt_ask_a_person(lab: Lab, after: object):
    desk, _ = observed_tool(lab, ["open", after], idempotency=Natural())
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "t1")
        history = await app.service.history("r-t1")
    assert lab.sent == ["t1 from open"]
    assert history.operations["close#1"].phase == "unknown"
    assert lab.of("r-t1", r.Reobserved)[0].reading == ("changed" if after == "closed" else "unreadable")


@virtual
async def test_preconditions_that_changed_while_nothing_can_have_landed_are_stale(lab: Lab):
    states: list[object] = ["open", "closed by somebody"]

    @tool
    async def close(ticket: str) -> str:
        lab.sent.append(ticket)
        raise ConnectionRefusedError("nobody listens")

    @close.observe
    async def state(operation: Operation[str]) -> object:
        return states.pop(0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return await close(name)
        except PreconditionsChanged as changed:
            return changed.outcome.code if changed.outcome else ""

    async with lab.app(desk) as app:
        assert await app.run(desk, "t1") == "stale"
    assert lab.sent == ["t1"]


@virtual
async def test_preconditions_that_cannot_be_read_before_the_first_attempt_send_nothing(lab: Lab):
    desk, _ = observed_tool(lab, [OSError("unreachable")])
    async with lab.app(desk) as app:
        with pytest.raises(OperationFailed, match="its preconditions are unreadable"):
            await app.run(desk, "t1")
    assert lab.sent == []


@virtual
async def test_a_found_result_that_cannot_be_stored_is_lost_and_the_effect_counts(lab: Lab):
    @tool
    async def send(to: str) -> int:
        lab.sent.append(to)
        raise Ambiguous("no answer")

    @send.verify(settle_window=0 * SECOND)
    async def find(operation: Operation[int]) -> Verdict[int]:
        return Happened("seven")  # type: ignore[arg-type]  # the bug under test

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        outcome = await send.outcome(name)
        return f"{outcome.status} {outcome.code}"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "succeeded result lost"


@virtual
async def test_changed_preconditions_are_not_read_again_without_a_pause(lab: Lab):
    """The pause until the next reading is waited out, and the world is read back after it."""
    readings = iter(range(10**9))
    looks: list[float] = []

    @tool(idempotency=Natural(), retry=Retry(attempts=5, elapsed=timedelta(minutes=30)))
    async def switch(to: str) -> str:
        raise TimeoutError("no answer")

    @switch.observe
    def is_now(operation: Operation[str]) -> int:
        return next(readings)

    @switch.verify(settle_window=timedelta(seconds=30), every=timedelta(seconds=5), deadline=timedelta(minutes=10))
    def look(operation: Operation[str]) -> Verdict[str]:
        looks.append(lab.loop.time())
        return CannotTell()

    async with lab.app(desk := one_call(switch), hold_ms=300_000) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert len(looks) > 20
    assert len(lab.of("r-ann", r.WaitScheduled)) < 3 * len(looks)
    assert next(readings) < 4 * len(looks)
