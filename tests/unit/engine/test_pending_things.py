"""While something is pending about a thing, a further call about it is not sent: in any run or process, and in any words."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from beforehand import (
    FreeText,
    Key,
    Once,
    Outcome,
    OutcomePending,
    Pending,
    Rejected,
    Run,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred, ParameterMismatch, RunStopped, RunSuspended, UsageError
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
Say = Callable[[Run, Any, str, str], Awaitable[Outcome[Any]]]


def body(lab: Lab, *, said: bool = True) -> Callable[[str, str], Awaitable[str]]:
    async def follow_up(lead: str, text: str) -> str:
        """Write to a lead, whose answer comes later."""
        lab.sent.append(f"{lead} {current_operation().key}")
        if said:
            current_operation().pending("an answer", within=HOUR, key=f"answer-{lead}")
        return "sent"

    return follow_up


async def by_code(run: Run, follow_up: Any, lead: str, text: str) -> Outcome[Any]:
    outcome: Outcome[Any] = await follow_up.outcome(lead, text)
    return outcome


async def by_model(run: Run, follow_up: Any, lead: str, text: str) -> Outcome[Any]:
    return await run.call("follow_up", {"lead": lead, "text": text})


SPELLINGS: dict[str, tuple[Callable[[Lab], Any], Say]] = {
    "plain": (lambda lab: tool(body(lab)), by_code),
    "declared": (
        lambda lab: tool(pending=Pending("an answer", about="lead", within=HOUR))(body(lab, said=False)),
        by_code,
    ),
    "once": (lambda lab: tool(once=Once("lead"))(body(lab)), by_code),
    "reworded": (lambda lab: tool(once=Once("lead", reworded=True))(body(lab)), by_code),
    "claim": (lambda lab: tool(claim="lead", idempotency=Key.forever())(body(lab)), by_code),
    "model": (lambda lab: tool(body(lab)), by_model),
    "model, once": (lambda lab: tool(once=Once("lead"))(body(lab)), by_model),
    "model, declared": (
        lambda lab: tool(pending=Pending("an answer", about="lead", within=HOUR))(body(lab, said=False)),
        by_model,
    ),
}
spelled = pytest.mark.parametrize("spelling", SPELLINGS)


def sellers(lab: Lab, spelling: str, times: int = 47) -> tuple[Any, list[Outcome[Any]]]:
    make, say = SPELLINGS[spelling]
    follow_up = make(lab)
    told: list[Outcome[Any]] = []

    @agent(run_id="sell-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        told.clear()
        for number in range(times):
            outcome = await say(run, follow_up, "ann", f"Just checking in, {name} {number}")
            told.append(outcome)  # a run that is suspended keeps what it was told
        return told[-1].status

    return sell, told


@spelled
@virtual
async def test_within_a_run_one_is_sent_and_the_others_are_told_that_it_is_pending(lab: Lab, spelling: str):
    sell, told = sellers(lab, spelling)
    async with lab.app(sell) as app:
        with pytest.raises(RunSuspended):
            await app.run(sell, "a")
        assert len(lab.sent) == 1
        assert told[0].status == "succeeded"
        for again in told[1:]:
            assert (again.status, again.code, again.pending) == ("pending", "pending", ("an answer",))
            assert again.reused == "sell-a/follow_up#1"
            assert "an answer of sell-a/follow_up#1 is pending since 2026-01-01 00:00:00 UTC" in again.as_text()
            assert "Do not repeat it" in again.as_text()
    async with lab.app(sell) as app:  # another process replays it to the same end
        with pytest.raises(RunSuspended):
            await app.run(sell, "a")
    assert len(lab.sent) == 1


@spelled
@virtual
async def test_across_runs_and_processes_it_is_not_sent_either(lab: Lab, spelling: str):
    sell, told = sellers(lab, spelling, times=1)
    await lab.until_suspended(sell, "a")
    async with lab.app(sell) as app:
        assert await app.run(sell, "b") == "pending"
        assert "is delivered to run sell-a, and not here" in told[-1].as_text()  # no answer ever reaches this run
    assert len(lab.sent) == 1


@pytest.mark.parametrize("end", ["succeeded", "failed", "deadline", "cancelled"])
@pytest.mark.parametrize("spelling", [one for one in SPELLINGS if one != "model, once"])
@virtual
async def test_it_is_released_when_what_is_pending_ends(lab: Lab, spelling: str, end: str):
    sell, told = sellers(lab, spelling, times=1)
    async with lab.app(sell) as app:
        with pytest.raises(RunSuspended):
            await app.run(sell, "a")
        (deferred,) = lab.of("sell-a", r.OperationDeferred)
        match end:
            case "succeeded" | "failed":
                await app.service.deliver(deferred.key, ArrivedAnswer("m1", end, why="no such mailbox"))
                assert await app.run(sell, "a") == "succeeded"
            case "deadline":
                await lab.pass_time(hours=2)
            case _:
                await app.service.cancel("sell-a", by="bea")
                with suppress(RunStopped, RunSuspended):
                    await app.resume("sell-a")
        if spelling == "claim":
            assert await app.run(sell, "b") == "failed"  # a business key names one effect for ever
            assert isinstance(told[-1].error(), ParameterMismatch)
            return
        with pytest.raises(RunSuspended):
            await app.run(sell, "b")
    assert len(lab.sent) == 2


@virtual
async def test_other_things_and_other_tools_are_untouched(lab: Lab):
    follow_up = tool(body(lab))

    @tool
    async def remind(lead: str, text: str) -> str:
        lab.sent.append(f"remind {lead}")
        return "sent"

    @agent(run_id="s-{name}", tools=[follow_up, remind])
    async def sell(run: Run, name: str) -> list[str]:
        calls = [follow_up.outcome("ann", "a"), follow_up.outcome("bob", "a"), remind.outcome("ann", "a")]
        return [(await one).status for one in calls]

    await lab.until_suspended(sell, "x")
    assert [one.split()[0] for one in lab.sent] == ["ann", "bob", "remind"]


@virtual
async def test_a_deferred_outcome_is_pending_too_and_a_plain_await_raises(lab: Lab):
    @tool
    async def pay(invoice: str, note: str) -> str:
        lab.sent.append(invoice)
        raise Deferred("accepted by the bank", key=f"P-{invoice}")

    @agent(run_id="p-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        try:
            return await pay("7", f"from {name}")
        except OutcomePending as pending:
            return f"{pending} {pending.outcome.reused if pending.outcome else ''}"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        said = await app.run(desk, "bob")
        assert "accepted by the bank" in said
        assert "p-ann/pay#1" in said
        await app.service.deliver("P-7", ArrivedAnswer("m1", "failed", why="refused"))
        with pytest.raises(Rejected):
            await app.run(desk, "ann")
        with pytest.raises(RunSuspended):
            await app.run(desk, "cid")
    assert lab.sent == ["7", "7"]


@virtual
async def test_sending_again_on_purpose_is_one_option_and_on_record(lab: Lab):
    follow_up = tool(pending=Pending("an answer", about="lead", within=HOUR))(body(lab, said=False))

    @agent(run_id="s-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> list[str]:
        first = await follow_up.outcome("ann", "one")
        again = await follow_up.options(again="the lead asked for it").outcome("ann", "two")
        model = await run.call("follow_up", {"lead": "ann", "text": "three"}, again="a person allowed it")
        held = await follow_up.outcome("ann", "four")
        return [first.status, again.status, model.status, held.status]

    async with lab.app(sell) as app:
        with pytest.raises(RunSuspended):
            await app.run(sell, "x")
        assert len(lab.sent) == 3
        reasons = [one.intent.again for one in lab.of("s-x", r.AttemptStarted) if one.intent and one.intent.again]
        assert reasons[0] == "the lead asked for it"
        assert "a person allowed it" in reasons
        with pytest.raises(UsageError, match="say why"):
            follow_up.options(again="  ")


@virtual
async def test_of_two_declared_calls_at_the_same_moment_one_is_sent(lab: Lab):
    @tool(pending=Pending("an answer", about="lead", within=HOUR))
    async def follow_up(lead: str, text: str) -> str:
        lab.sent.append(lead)
        await asyncio.sleep(5)
        return "sent"

    @agent(run_id="s-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        return (await follow_up.outcome("ann", name)).status

    async with lab.app(sell) as one, lab.app(sell) as two:
        ends = await asyncio.gather(one.run(sell, "a"), two.run(sell, "b"), return_exceptions=True)
    assert lab.sent == ["ann"]
    assert "pending" in [one for one in ends if isinstance(one, str)]


@pytest.mark.parametrize(
    ("about", "again", "sent"),
    [
        ("lead", {"lead": "ann", "text": "x"}, False),
        ("ann", {"lead": "ann", "text": "x"}, False),
        ("ann", {"lead": "bob", "text": "ann"}, True),  # a literal is compared with what is not free text
        (("lead", "day"), {"lead": "ann", "text": "x"}, False),
        (("lead", "day"), {"lead": "ann", "text": "x", "day": 2}, True),
        ("everything", {"lead": "ann", "text": "x"}, True),
        ("ann", {"lead": "cid", "text": "x", "cc": ("bob", "ann")}, False),
        ("", {"lead": "ann", "text": "x"}, False),
        ("", {"lead": "ann", "text": "x", "day": 2}, True),
    ],
)
@virtual
async def test_what_it_is_about_is_named_where_it_is_said(lab: Lab, about: Any, again: dict[str, Any], sent: bool):
    @tool
    async def follow_up(lead: str, text: str, day: int = 1, cc: tuple[str, ...] = ()) -> str:
        lab.sent.append(lead)
        current_operation().pending("an answer", about=about)
        return "sent"

    @agent(run_id="s-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        await follow_up.outcome("ann", "first")
        return (await follow_up.outcome(**again)).status

    await lab.until_suspended(sell, "x")
    assert len(lab.sent) == 1 + sent


@virtual
async def test_waiting_for_what_is_pending_waits_for_the_earlier_call(lab: Lab):
    follow_up = tool(body(lab))

    @agent(run_id="s-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        await follow_up.outcome("ann", "one")
        again = await follow_up.outcome("ann", "two")
        return (await run.wait_pending(again))["an answer"].status

    async with lab.app(sell) as app:
        with pytest.raises(RunSuspended):
            await app.run(sell, "x")
        await app.service.deliver("answer-ann", ArrivedAnswer("m1"))
        assert await app.run(sell, "x") == "succeeded"
    assert len(lab.sent) == 1


@pytest.mark.parametrize("later_ms", [260, 2000])
@virtual
async def test_another_open_process_sees_the_first_pending_thing_of_a_tool_within_one_poll(lab: Lab, later_ms: int):
    """The tool declares nothing, and nothing of it was ever pending when the other process was opened."""
    sell, _ = sellers(lab, "plain", times=1)
    async with lab.app(sell, poll_ms=250) as first, lab.app(sell, poll_ms=250) as other:
        with pytest.raises(RunSuspended):
            await first.run(sell, "a")
        await lab.pass_time(milliseconds=later_ms)
        assert await other.run(sell, "b") == "pending"
    assert len(lab.sent) == 1


@virtual
async def test_another_open_process_sees_later_pending_things_of_a_tool_at_once(lab: Lab):
    follow_up = tool(body(lab))

    @agent(run_id="{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        outcome: Outcome[Any] = await follow_up.outcome(name.partition("-")[0], f"Just checking in, {name}")
        return outcome.status

    async with lab.app(sell, poll_ms=250) as first, lab.app(sell, poll_ms=250) as other:
        with pytest.raises(RunSuspended):
            await first.run(sell, "ann-1")
        await lab.pass_time(seconds=1)
        with pytest.raises(RunSuspended):
            await first.run(sell, "bob-1")
        assert await other.run(sell, "bob-2") == "pending"
    assert len(lab.sent) == 2


@virtual
async def test_a_process_that_takes_a_run_over_knows_what_is_pending_in_it(lab: Lab):
    """Found by the simulator, seed 269: the entry that names the thing came after the last look at the ledger."""

    @tool
    async def rent(thing: str) -> str:
        lab.sent.append(thing)
        raise Deferred("accepted", within=HOUR)

    @agent(run_id="r-{name}", tools=[rent])
    async def desk(run: Run, name: str) -> list[str]:
        first = await run.call("rent", {"thing": "van"})
        await run.sleep(timedelta(minutes=1))
        return [first.status, (await run.call("rent", {"thing": "van"})).status]

    async with lab.app(desk, poll_ms=600_000) as first, lab.app(desk, poll_ms=600_000) as other:
        with pytest.raises(RunSuspended):
            await first.run(desk, "ann")
        await lab.pass_time(seconds=61)
        with pytest.raises(RunSuspended):
            await other.run(desk, "ann")
    assert lab.sent == ["van"]


def german(lab: Lab, **clauses: Any) -> Any:
    @tool(**clauses)
    async def nachfassen(an: str, beschreibung: str, dringlichkeit: int) -> str:
        lab.sent.append(an)
        current_operation().pending("Antwort", within=HOUR)
        return "gesendet"

    return nachfassen


def annotated(lab: Lab, **clauses: Any) -> Any:
    @tool(**clauses)
    async def nachfassen(an: str, beschreibung: FreeText, message: str = "", anhang: FreeText | None = None) -> str:
        lab.sent.append(an)
        current_operation().pending("Antwort", within=HOUR)
        return "gesendet"

    return nachfassen


NAMED_BY: dict[str, Callable[[Lab], Any]] = {
    "about": lambda lab: german(lab, pending=Pending("eine Antwort", about="an")),
    "claim": lambda lab: german(lab, claim="an"),
    "once": lambda lab: german(lab, once=Once("an")),
    "title": lambda lab: german(lab, title="Mail an {an}"),
    "title, free text": lambda lab: annotated(lab, title="Mail an {an}: {beschreibung}"),
    "free text": annotated,
}


@pytest.mark.parametrize("spelling", NAMED_BY)
@virtual
async def test_what_names_the_thing_counts_in_any_language(lab: Lab, spelling: str):
    nachfassen = NAMED_BY[spelling](lab)

    @agent(run_id="s-{name}", tools=[nachfassen])
    async def sell(run: Run, name: str) -> str:
        for number in range(5):
            given = {"anhang": f"Seite {number}"} if "free text" in spelling else {"dringlichkeit": number}
            await run.call("nachfassen", {"an": "ann", "beschreibung": f"hallo {number}", **given})
        given = {} if "free text" in spelling else {"dringlichkeit": 1}
        await run.call("nachfassen", {"an": "bob", "beschreibung": "hallo 1", **given})
        return name

    await lab.until_suspended(sell, "x")
    assert lab.sent == ["ann", "bob"]


@virtual
async def test_where_free_text_is_declared_no_name_is_taken_for_it(lab: Lab):
    nachfassen = annotated(lab)

    @agent(run_id="s-{name}", tools=[nachfassen])
    async def sell(run: Run, name: str) -> str:
        for message in ("one", "two", "two"):  # an English name for wording, and not declared as such: it counts
            await nachfassen.outcome("ann", "hallo", message)
        return name

    await lab.until_suspended(sell, "x")
    assert lab.sent == ["ann", "ann"]


@virtual
async def test_a_pending_text_is_not_looked_for_in_declared_free_text(lab: Lab):
    @tool
    async def follow_up(lead: str, beschreibung: FreeText) -> str:
        lab.sent.append(lead)
        current_operation().pending("an answer", about="ann smith")
        return "sent"

    @agent(run_id="s-{name}", tools=[follow_up])
    async def sell(run: Run, name: str) -> str:
        await follow_up.outcome("ann smith", "first")
        return (await follow_up.outcome("bob", "ann smith")).status

    await lab.until_suspended(sell, "x")
    assert lab.sent == ["ann smith", "bob"]
