"""The breaker and the bucket of retries as tables: the whole state after each thing that happens, at each bound."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from beforehand import Run, agent, tool
from beforehand.engine.breaker import (
    CLOSED,
    BreakerState,
    ToolPause,
    after_failure,
    after_retry,
    credible,
    pause_post,
    paused_tools,
    wait_ms,
)
from beforehand.journal.port import Post
from tests.unit.engine.lab import Lab, virtual

NOW = 1_000_000


def state(failures: int = 0, last_s: float = 0, open_until_s: float = 0, opened: int = 0, tokens: float = 50) -> Any:
    """A state whose moments are seconds from now."""
    return BreakerState(failures, NOW + round(last_s * 1000), NOW + round(open_until_s * 1000), opened, tokens)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (CLOSED, BreakerState(1, NOW, 0, 0)),
        (state(1), BreakerState(2, NOW, NOW, 0)),
        (state(3), BreakerState(4, NOW, NOW, 0)),
        (state(4), BreakerState(5, NOW, NOW + 1_000, 1)),
        (state(5, opened=1), BreakerState(6, NOW, NOW + 2_000, 2)),
        (state(6, opened=2), BreakerState(7, NOW, NOW + 4_000, 3)),
        (state(9, opened=5), BreakerState(10, NOW, NOW + 32_000, 6)),
        (state(9, opened=6), BreakerState(10, NOW, NOW + 60_000, 7)),
        (state(99, opened=99), BreakerState(100, NOW, NOW + 60_000, 100)),
        (state(4, last_s=-30, open_until_s=-99), BreakerState(5, NOW, NOW + 1_000, 1)),
        (state(4, last_s=-30.001, open_until_s=-99), BreakerState(1, NOW, NOW - 99_000, 0)),
        (state(7, last_s=-90, open_until_s=-30, opened=3), BreakerState(8, NOW, NOW + 8_000, 4)),
        (state(7, last_s=-90, open_until_s=-30.001, opened=3), BreakerState(1, NOW, NOW - 30_001, 0)),
        (state(1, last_s=-10, tokens=20), BreakerState(2, NOW, NOW, 0, 40.0)),
        (state(1, last_s=-20, tokens=20), BreakerState(2, NOW, NOW, 0, 50.0)),
        (state(1, last_s=5, tokens=20), BreakerState(2, NOW, NOW, 0, 20.0)),
    ],
)
def test_a_failure_counts_as_one_more_in_a_row_until_the_breaker_opens(before: BreakerState, after: BreakerState):
    assert after_failure(before, NOW) == after


@pytest.mark.parametrize(
    ("before", "tokens"),
    [(state(tokens=50), 49), (state(tokens=1), 0), (state(tokens=0.5), 0), (state(last_s=-10, tokens=20), 39),
     (state(last_s=-60, tokens=20), 49), (state(last_s=9, tokens=20), 19)],
)  # fmt: skip
def test_a_retry_spends_one_token_and_changes_nothing_else(before: BreakerState, tokens: float):
    before = replace(before, failures=3, opened=2)
    assert after_retry(before, NOW) == replace(before, tokens=tokens, last_ms=NOW)


@pytest.mark.parametrize(
    ("of", "first_ms", "retry_ms"),
    [
        (CLOSED, 0, 0),
        (state(5, open_until_s=4), 4_000, 4_000),
        (state(5, open_until_s=60), 60_000, 60_000),
        (state(5, open_until_s=100), 60_000, 60_000),
        (state(5, open_until_s=120), 60_000, 60_000),
        (state(5, open_until_s=120.001), 0, 0),
        (state(5, last_s=120.001, tokens=0), 0, 0),
        (state(5, open_until_s=-4), 0, 0),
        (state(tokens=1), 0, 0),
        (state(tokens=0.5), 0, 251),
        (state(tokens=0), 0, 501),
        (state(last_s=-0.25, tokens=0), 0, 251),
        (state(last_s=-0.5, tokens=0), 0, 0),
        (state(open_until_s=0.1, tokens=0), 100, 501),
        (state(open_until_s=2, tokens=0), 2_000, 2_000),
    ],
)
def test_an_attempt_waits_for_the_breaker_and_a_retry_for_the_bucket_too(
    of: BreakerState, first_ms: int, retry_ms: int
):
    """A moment that is further away than a pause and an error of the clock is that of a clock that was set back."""
    assert (wait_ms(of, NOW, retry=False), wait_ms(of, NOW, retry=True)) == (first_ms, retry_ms)
    ahead = max(of.last_ms, of.open_until_ms) > NOW + 120_000
    assert credible(of, NOW) == (CLOSED if ahead else of)


@tool
async def send(to: str) -> str:
    return to


@tool
async def mail(to: str) -> str:
    return to


@agent(run_id="r-{name}", tools=[send, mail])
async def desk(run: Run, name: str) -> str:
    return name


@pytest.mark.parametrize("failures", [0, 1, 4, 5, 8])
@virtual
async def test_a_success_forgets_all_failures_of_its_tool_and_keeps_what_retries_have_spent(lab: Lab, failures: int):
    async with lab.app(desk) as one, lab.app(desk) as two:
        breakers, others = one.engine.breakers, two.engine.breakers
        for _ in range(failures):
            await breakers.failed("send")
            await breakers.retried("send")
            await breakers.failed("mail")
        assert breakers.troubled == bool(failures)
        spent = breakers.states.get("send", (CLOSED, None))[0].tokens
        hints = await lab.journal.cells("hint")
        await breakers.succeeded("send")
        assert (await lab.journal.cells("hint") == hints) == (failures == 0), "nothing is written on the quiet path"
        await others.refresh()
        await breakers.refresh()
        for known in (breakers, others):
            assert known.wait_ms("send", retry=False) == 0
            assert (known.wait_ms("mail", retry=False) > 0) == (failures >= 5)
            after = known.states.get("send", (CLOSED, None))[0]
            assert (after.failures, after.open_until_ms, after.opened, after.tokens) == (0, 0, 0, spent)
        for _ in range(4):
            await others.failed("send")
        assert others.wait_ms("send", retry=False) == 0, "the count begins anew"
        await others.failed("send")
        assert others.wait_ms("send", retry=False) == 1_000, "and so does the pause"


PAUSED = "paused by ann"
UNREADABLE = "the command in ledger entry"


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ([], None),
        ([ToolPause("pause", "ann")], PAUSED),
        ([ToolPause("pause", "ann", "it is down")], "it is down"),
        ([ToolPause("pause", "ann"), ToolPause("unpause", "bob", "it is up")], None),
        ([ToolPause("unpause", "bob")], None),
        ([ToolPause("unpause", "bob"), ToolPause("pause", "ann")], PAUSED),
        ([ToolPause("pause", "bob", "first"), ToolPause("pause", "ann", "then")], "then"),
        ([None], UNREADABLE),
        ([None, ToolPause("unpause", "bob")], None),
        ([ToolPause("unpause", "bob"), None], UNREADABLE),
    ],
    ids=str,
)
@virtual
async def test_the_newest_command_about_a_tool_holds_for_it_alone(
    lab: Lab, commands: list[ToolPause | None], why: str | None
):
    await lab.journal.open()
    await lab.journal.commit(pause_post("other", ToolPause("pause", "eve", "always")))
    for one in commands:
        await lab.journal.commit(pause_post("send", one) if one is not None else Post("pause/send", "", b"{"))
    for _again in range(2):
        paused = await paused_tools(lab.journal)
        assert paused.pop("other") == "always"
        assert set(paused) == ({"send"} if why else set())
        assert why is None or paused["send"].startswith(why)
        assert why != UNREADABLE or paused["send"].endswith(" unpause --tool send")
