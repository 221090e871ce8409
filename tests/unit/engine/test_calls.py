"""One call of a tool: its time limit, its thread, its last word, and what its errors prove. Long: each end has its own test."""

import asyncio
from datetime import timedelta

import httpx
import pytest

from beforehand import Ambiguous, Key, Natural, NotSent, Rejected, Run, agent, current_operation, tool
from beforehand.errors import OperationFailed, OutsideRun, RunSuspended, SendByPassed
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)


def answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    """What an HTTP client raises for an answer that is no success."""
    request = httpx.Request("POST", "https://example.com/refunds")
    response = httpx.Response(status, headers={name.replace("_", "-"): text for name, text in headers.items()})
    return httpx.HTTPStatusError(f"status {status}", request=request, response=response)


def one_call(send: object):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> object:
        return await send(name)

    return desk


@virtual
async def test_an_async_call_that_takes_too_long_is_cancelled_and_ambiguous(lab: Lab):
    @tool(timeout=5 * SECOND)
    async def send(to: str) -> str:
        await lab.pass_time(hours=1)
        return "late"

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    ended = lab.of("r-ann", r.AttemptEnded)[0]
    assert (ended.end.kind, ended.over) == ("ambiguous", True)
    assert "no answer within 5 s" in ended.end.why


@virtual
async def test_a_cancelled_call_may_say_a_last_word(lab: Lab):
    @tool(timeout=5 * SECOND)
    async def send(to: str) -> str:
        try:
            await lab.pass_time(hours=1)
        except asyncio.CancelledError:
            return "it had landed"
        return "late"

    async with lab.app(desk := one_call(send)) as app:
        assert await app.run(desk, "ann") == "it had landed"


@virtual
async def test_an_async_tool_that_ignores_cancellation_is_given_up_and_heard_later(lab: Lab):
    @tool(timeout=5 * SECOND)
    async def send(to: str) -> str:
        for _ in range(10):
            try:
                await lab.pass_time(seconds=10)
                break
            except asyncio.CancelledError:
                continue
        lab.sent.append(to)
        return "in the end"

    async with lab.app(desk := one_call(send), hold_ms=10**9) as app:
        handle = app.start(desk, "ann")
        try:
            assert await handle.result() == "in the end"
        except RunSuspended:
            await lab.pass_time(seconds=30)
            assert await app.run(desk, "ann") == "in the end"
    assert lab.sent == ["ann"]
    assert [report.number for report in lab.of("r-ann", r.LateReport)] == [1]


@virtual
async def test_check_send_refuses_after_the_deadline_and_proves_that_nothing_was_sent(lab: Lab):
    told: list[str] = []

    @tool(timeout=5 * SECOND, retry=Retry(attempts=2))
    async def send(to: str) -> str:
        at = current_operation()
        if at.attempt == 1:
            try:
                await lab.pass_time(seconds=60)
            except asyncio.CancelledError:
                try:
                    at.check_send()
                except SendByPassed as passed:
                    told.append(passed.message)
                    raise
        at.check_send()
        lab.sent.append(to)
        return "sent"

    async with lab.app(desk := one_call(send)) as app:
        assert await app.run(desk, "ann") == "sent"
    assert "the send-by deadline passed" in told[0]
    assert lab.sent == ["ann"]


@virtual
async def test_inner_retries_count_as_sends_so_a_later_refused_connection_proves_nothing(lab: Lab):
    @tool
    async def send(to: str) -> str:
        at = current_operation()
        at.check_send()
        lab.sent.append(to)  # it landed, and the reply was lost
        at.check_send()
        raise ConnectionRefusedError("the second try found nobody")

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == ["ann"]


@virtual
async def test_a_declared_answer_to_an_inner_retry_proves_nothing_about_the_first_send(lab: Lab):
    @tool(not_sent={429})
    async def send(to: str) -> str:
        current_operation().check_send()
        lab.sent.append(to)  # it landed, and the reply was lost
        current_operation().check_send()
        raise answered(429)

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == ["ann"]


@virtual
async def test_an_undeclared_answer_is_ambiguous_on_a_write_and_a_declared_one_is_what_was_declared(lab: Lab):
    answers: dict[str, list[Exception]] = {}

    @tool(rejections={404}, not_sent={429, 503}, retry=Retry(attempts=2))
    async def declared(what: str) -> str:
        if answers[what]:
            raise answers[what].pop(0)
        return "ok"

    @tool
    async def plain(what: str) -> str:
        raise answers[what].pop(0)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        outcome = await (plain if name.startswith("plain") else declared).outcome(name)
        return f"{outcome.status} {outcome.code}".strip()

    answers = {
        "a404": [answered(404)],
        "a503": [answered(503, retry_after="9")],
        "a500": [answered(500)],
        "plain503": [answered(503)],
        "plain404": [answered(404)],
    }
    async with lab.app(desk) as app:
        assert await app.run(desk, "a404") == "failed 404"
        before = lab.loop.time()
        assert await app.run(desk, "a503") == "succeeded"
        assert lab.loop.time() - before >= 9
        for name in ("a500", "plain503", "plain404"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)


@virtual
async def test_a_tool_that_raises_stop_iteration_or_cancels_itself_ends_ambiguous(lab: Lab):
    @tool
    def stops(to: str) -> str:
        raise StopIteration

    @tool
    async def cancels(to: str) -> str:
        raise asyncio.CancelledError

    for name, one in (("a", stops), ("b", cancels)):
        async with lab.app(desk := one_call(one)) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
    assert "the tool raised StopIteration" in lab.of("r-a", r.AttemptEnded)[0].end.why
    assert "cancelled from within" in lab.of("r-b", r.AttemptEnded)[0].end.why


@virtual
async def test_the_tools_own_words_count_first(lab: Lab):
    kinds: list[str] = []

    @tool(retry=Retry(attempts=1), idempotency=Natural())
    async def send(kind: str) -> str:
        raise {"not_sent": NotSent("no"), "rejected": Rejected("no"), "ambiguous": Ambiguous("who knows")}[kind]

    async with lab.app(desk := one_call(send)) as app:
        for kind in ("not_sent", "rejected"):
            with pytest.raises(OperationFailed):
                await app.run(desk, kind)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ambiguous")
    for kind in ("not_sent", "rejected", "ambiguous"):
        ends = [e.end for e in lab.of(f"r-{kind}", r.AttemptEnded)]
        ends += [s.end for s in lab.of(f"r-{kind}", r.OperationSettled) if s.end]
        kinds.append(ends[0].kind)
    assert kinds == ["not_sent", "rejected", "ambiguous"]


@virtual
async def test_a_tool_outside_a_run_sends_nothing_and_says_why(lab: Lab):
    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return to

    with pytest.raises(OutsideRun, match="could not be recorded; nothing was sent"):
        await send("ann")
    with pytest.raises(OutsideRun, match=r"beforehand\.testing\.operation"):
        current_operation()
    assert lab.sent == []
    assert await send.__wrapped__("ann") == "ann"


@virtual
async def test_mutable_arguments_are_frozen_in_the_intent(lab: Lab):
    @tool(idempotency=Key.forever())
    async def send(rows: list[int]) -> int:
        assert current_operation().key
        lab.sent.append(str(rows))
        rows.append(99)
        if len(lab.sent) == 1:
            raise ConnectionResetError("gone")
        return len(rows)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        rows = [1, 2]
        result = await send(rows)
        assert rows == [1, 2]
        return result

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == 3
    assert lab.sent == ["[1, 2]", "[1, 2]"]


@virtual
async def test_a_send_refused_after_an_earlier_one_does_not_prove_that_nothing_was_sent(lab: Lab):
    @tool(timeout=5 * SECOND)
    async def send(to: str) -> str:
        at = current_operation()
        at.check_send()
        lab.sent.append(to)  # it landed, and the reply was lost
        try:
            await lab.pass_time(seconds=60)
        except asyncio.CancelledError:
            at.check_send()
        return "not reached"

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == ["ann"]


@virtual
async def test_a_keyed_call_that_ran_out_of_time_without_reading_its_key_is_not_repeated(lab: Lab):
    @tool(idempotency=Key.forever(), timeout=5 * SECOND)
    async def send(to: str) -> str:
        lab.sent.append(to)
        await lab.pass_time(seconds=60)
        return "late"

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == ["ann"]


@virtual
async def test_a_coroutine_that_a_plain_function_gives_is_no_result(lab: Lab):
    """A decorator that hides `async`: the body never ran, so it must not count as done."""
    sent: list[str] = []

    async def body(to: str) -> str:
        sent.append(to)
        return to

    @tool
    def send(to: str) -> object:
        return body(to)

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended, match="gave a coroutine that never ran"):
            await app.run(desk, "ann")
    assert not sent
    assert lab.of("r-ann", r.AttemptEnded)[0].end.kind == "ambiguous"


@virtual
async def test_a_generator_that_a_plain_function_gives_is_no_result(lab: Lab):
    @tool
    def send(to: str) -> object:
        return (letter for letter in to)

    async with lab.app(desk := one_call(send)) as app:
        with pytest.raises(RunSuspended, match="gave a generator that never ran"):
            await app.run(desk, "ann")
