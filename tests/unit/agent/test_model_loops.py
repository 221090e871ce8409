"""A model that asks for the same effect again and again in one run: in turn, at once, in other words, over a crash."""

from datetime import timedelta

import pytest

from beforehand import Once, Outcome, Run, agent, tool
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HELLO = {"to": "ann", "subject": "Hello", "body": "Good morning"}
REWORDED = {**HELLO, "body": "A very good morning"}
WEEK = timedelta(days=7)


def mail(lab: Lab, once: Once | None):
    """A plain write; `lab.sent` is what was sent."""

    @tool(once=once)
    async def send(to: str, subject: str, body: str) -> str:
        lab.sent.append(body)
        return f"m-{len(lab.sent)}"

    return send


def loop(send, calls: list[dict[str, str]], *, at_once: bool = False, told: list[Outcome[object]]):
    """An agent whose model makes these calls, in turn or at once."""

    @agent(run_id="r-{name}", tools=[send])
    async def model(run: Run, name: str) -> int:
        if at_once:
            told.extend(await run.gather(*(run.call("send", call) for call in calls)))
        else:
            told.extend([await run.call("send", call) for call in calls])
        return len(told)

    return model


@pytest.mark.parametrize("at_once", [False, True])
@virtual
async def test_a_loop_of_one_call_sends_once_and_says_so_each_time(lab: Lab, at_once: bool):
    told: list[Outcome[object]] = []
    model = loop(mail(lab, Once("to", "subject", within=WEEK)), [HELLO] * 5, at_once=at_once, told=told)
    async with lab.app(model) as app:
        await app.run(model, "x")
    assert lab.sent == ["Good morning"]
    assert sorted(outcome.result for outcome in told) == ["m-1"] * 5
    assert sum(bool(outcome.reused) for outcome in told) == 4
    assert len(lab.of("r-x", r.OutcomeReused)) == 4, "nothing is suppressed silently"


@virtual
async def test_a_crash_in_the_loop_changes_nothing(lab: Lab):
    send = mail(lab, Once("to", "subject", within=WEEK))

    @agent(run_id="r-{name}", tools=[send])
    async def model(run: Run, name: str) -> list[bool]:
        told: list[Outcome[object]] = []
        for _ in range(3):
            told.append(await run.call("send", HELLO))
            await run.sleep(timedelta(seconds=5))
        return [bool(outcome.reused) for outcome in told]

    for crash_after_s in (2, 5):
        app = lab.make(model)
        process = lab.processes[-1]
        await app.open()
        app.start(model, "x")
        await lab.pass_time(seconds=crash_after_s)
        await lab.bury(app, process)
    async with lab.app(model) as app:
        assert await app.run(model, "x") == [False, True, True]
    assert lab.sent == ["Good morning"]


@virtual
async def test_other_words_are_another_effect(lab: Lab):
    """What the pages say: the same addressee and subject with another body is sent, and never answered with the first."""
    told: list[Outcome[object]] = []
    model = loop(mail(lab, Once("to", "subject", within=WEEK)), [HELLO, REWORDED], told=told)
    async with lab.app(model) as app:
        await app.run(model, "x")
    assert lab.sent == ["Good morning", "A very good morning"]
    assert [outcome.result for outcome in told] == ["m-1", "m-2"]


@virtual
async def test_a_loop_may_be_refused_instead(lab: Lab):
    told: list[Outcome[object]] = []
    model = loop(mail(lab, Once("to", "subject", then="block")), [HELLO] * 3, told=told)
    async with lab.app(model) as app:
        await app.run(model, "x")
    assert [(outcome.status, outcome.code) for outcome in told][1:] == [("failed", "repeat")] * 2
    assert lab.sent == ["Good morning"]


@virtual
async def test_without_a_declaration_every_call_of_a_model_is_an_effect(lab: Lab):
    """What is true of a bare tool; `tools --lint` warns of it."""
    told: list[Outcome[object]] = []
    model = loop(mail(lab, None), [HELLO] * 3, told=told)
    async with lab.app(model) as app:
        await app.run(model, "x")
    assert len(lab.sent) == 3
