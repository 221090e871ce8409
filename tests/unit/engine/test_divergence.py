"""Code that does not come back to what is recorded is stopped before anything is sent, with a readable diff."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import ParameterMismatch, ReplayDiverged, RunStopped, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)


def bench(lab: Lab):
    """Two writes and a read."""

    @tool
    async def charge(name: str) -> str:
        lab.sent.append(f"charge {name}")
        return name

    @tool
    async def invoice(name: str) -> str:
        lab.sent.append(f"invoice {name}")
        return name

    @tool(effect="read")
    async def look(name: str) -> str:
        return name

    return charge, invoice, look


async def first_pass_then_change(lab: Lab, desk: object) -> ReplayDiverged:
    """Drive the agent until it sleeps, change the code, and give the error of the second drive."""
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        lab.changed = True
        await lab.pass_time(hours=1)
        sent = list(lab.sent)
        with pytest.raises(ReplayDiverged) as diverged:
            await app.run(desk, "x")
        assert lab.sent == sent
        with pytest.raises(RunStopped) as stopped:
            await app.run(desk, "x")
        assert stopped.value.reason == "diverged"
        lab.changed = False
        assert await app.resume("r-x") == "done"
        assert lab.sent == sent
    return diverged.value


@virtual
async def test_other_arguments_for_a_recorded_write(lab: Lab):
    charge, _, _ = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await charge("b" if lab.changed else "a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "is another call than the recorded one" in str(error)
    assert '- recorded: charge {"name":"a"}' in error.difference
    assert '+ now:      charge {"name":"b"}' in error.difference
    assert isinstance(error.__cause__, ParameterMismatch)


@virtual
async def test_a_new_write_while_a_recorded_one_has_not_come_back(lab: Lab):
    charge, invoice, _ = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await (invoice if lab.changed else charge)("a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "- recorded, not reached: r-x/charge#1" in error.difference


@virtual
async def test_a_write_that_another_branch_does_not_come_back_to(lab: Lab):
    charge, invoice, _ = bench(lab)

    async def left() -> None:
        if not lab.changed:
            await charge("a")

    async def right() -> None:
        if lab.changed:
            await invoice("b")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.gather(left(), right())
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "- recorded, not reached: r-x/~1/charge#1" in error.difference


@virtual
async def test_an_agent_that_returns_without_its_recorded_write(lab: Lab):
    charge, _, _ = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if not lab.changed:
            await charge("a")
            await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "the agent returned without reaching recorded operations" in str(error)


@pytest.mark.parametrize("kind", ["write", "read"])
@virtual
async def test_another_tool_under_the_same_explicit_step(lab: Lab, kind: str):
    """Its arguments are the same, and it is another effect all the same."""
    charge, invoice, look = bench(lab)

    @tool(effect="read")
    async def peek(name: str) -> str:
        return name

    first, second = (charge, invoice) if kind == "write" else (look, peek)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await (second if lab.changed else first).options(step="it")("a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "+ now:" in error.difference
    assert f'{second.name} {{"name":"a"}}' in error.difference


@virtual
async def test_a_write_that_became_a_read(lab: Lab):
    charge, _, look = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await (look if lab.changed else charge).options(step="it")("a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "it is recorded as a write, and is a read now" in str(error)


@virtual
async def test_a_read_that_became_a_write(lab: Lab):
    charge, _, look = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await (charge if lab.changed else look).options(step="it")("a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "it is recorded as a read, and is a write now" in str(error)


@virtual
async def test_another_read_where_one_is_recorded(lab: Lab):
    _, _, look = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await look("b" if lab.changed else "a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "is another read than the recorded one" in str(error)
    assert '+ now:      look {"name":"b"}' in error.difference


@virtual
async def test_another_question_for_a_recorded_decision(lab: Lab):
    bench(lab)

    async def rule(text: str) -> str:
        return text

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(rule, "b" if lab.changed else "a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "rule#1 was asked something else when it was recorded. Next: " in str(error)  # no adapter, no differs=


@virtual
async def test_another_journaled_value_under_a_recorded_name(lab: Lab):
    async def now(text: str) -> str:
        return text

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if lab.changed:
            await run.now()
        else:
            await run.decide(now, "a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "now#1 is recorded as another step than now" in str(error)


@virtual
async def test_code_that_waits_for_nothing_recorded_diverges(lab: Lab):
    charge, _, look = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if not lab.changed:
            await look("first")
        await look.options(step="second")("a")
        await charge("a")
        await run.sleep(HOUR)
        return "done"

    error = await first_pass_then_change(lab, desk)
    assert "the code comes to second where the record has look#1" in str(error)


@virtual
async def test_an_agent_may_not_swallow_a_divergence(lab: Lab):
    charge, invoice, _ = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            await charge("b" if lab.changed else "a")
        except ReplayDiverged:
            await invoice("instead")
        await run.sleep(HOUR)
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        lab.changed = True
        await lab.pass_time(hours=1)
        with pytest.raises(ReplayDiverged):
            await app.run(desk, "x")
    assert lab.sent == ["charge a"]
    assert lab.of("r-x", r.RunStoppedRecord)[0].reason == "diverged"


@virtual
async def test_the_same_run_id_with_another_input_is_refused_whether_it_runs_or_ended(lab: Lab):
    charge, _, _ = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.sleep(timedelta(seconds=5))
        return await charge(name)

    async with lab.app(desk) as app:
        handle = app.start(desk, "x", run_id="one")
        await lab.pass_time(seconds=1)
        with pytest.raises(ParameterMismatch, match="running with another input"):
            await app.run(desk, "y", run_id="one")
        assert await handle.result() == "x"
        with pytest.raises(ParameterMismatch, match='recorded: "x"; now: "y"'):
            await app.run(desk, "y", run_id="one")
        assert await app.run(desk, "x", run_id="one") == "x"
    assert lab.sent == ["charge x"]


@virtual
async def test_inputs_that_differ_in_their_type_alone_are_shown_with_it(lab: Lab):
    @agent()
    async def desk(run: Run, given: Any) -> str:
        return str(given)

    async with lab.app(desk) as app:
        assert await app.run(desk, Decimal("1.5"), run_id="one") == "1.5"
        with pytest.raises(ParameterMismatch, match=r'recorded: .*decimal.*; now: {"input":1.5}'):
            await app.run(desk, 1.5, run_id="one")


@virtual
async def test_version_markers_keep_old_runs_on_the_old_way(lab: Lab):
    charge, invoice, look = bench(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await look("start")
        if lab.changed:
            way = await run.version("invoices", newest=2)
            again = await run.version("invoices", newest=2)
            assert way == again or (way, again) == (0, 2)
            await (invoice if way == 2 else charge)(name)
        else:
            await charge(name)
        await run.sleep(HOUR)
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "old")
        lab.changed = True
        with pytest.raises(RunSuspended):
            await app.run(desk, "new")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "old") == "done"
        assert await app.run(desk, "new") == "done"
    assert lab.sent == ["charge old", "invoice new"]
