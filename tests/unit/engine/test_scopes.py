"""Steps keep their names, and code is told things in the recorded order, however branches interleave."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.active_run.scopes import SCOPE
from beforehand.errors import AmbiguousStep, RunSuspended, UsageError
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual


def slow_steps(lab: Lab, seconds: dict[str, float]):
    """A read and a write whose durations can be changed between the first pass and the replay."""

    @tool(effect="read")
    async def fetch(name: str) -> str:
        await lab.pass_time(seconds=seconds.get(name, 0))
        return name

    @tool
    async def refund(name: str) -> str:
        lab.sent.append(name)
        return f"refunded {name}"

    return fetch, refund


def names(lab: Lab, run: str = "r-x") -> set[tuple[str, str]]:
    """Each recorded write: its step and its argument."""
    return {
        (started.step, started.intent.arguments and bytes(started.intent.arguments).decode())
        for started in lab.of(run, r.AttemptStarted)
    }


@virtual
async def test_branches_of_gather_are_numbered_by_creation_not_by_completion(lab: Lab):
    fetch, refund = slow_steps(lab, {"a": 3, "b": 1, "c": 2})
    told: list[object] = []

    async def handle(name: str) -> str:
        return await refund(await fetch(name))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        told.append(await run.gather(handle("a"), handle("b"), handle("c")))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        assert lab.sent == ["b", "c", "a"]
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert told == [["refunded a", "refunded b", "refunded c"]] * 2
    assert lab.sent == ["b", "c", "a"]
    assert names(lab) == {
        ("~1/refund#1", '{"name":"a"}'), ("~2/refund#1", '{"name":"b"}'), ("~3/refund#1", '{"name":"c"}'),
    }  # fmt: skip


@virtual
async def test_branches_of_map_are_named_by_item_so_their_order_may_change(lab: Lab):
    fetch, refund = slow_steps(lab, {})
    orders = [["a", "b", "c"], ["c", "a", "b"]]
    told: list[object] = []

    async def handle(name: str) -> str:
        return await refund(await fetch(name))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        rows = orders[len(told)]
        told.append(dict(zip(rows, await run.map(handle, rows, id=lambda row: f"order-{row}"), strict=True)))
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert told[0] == told[1] == {"a": "refunded a", "b": "refunded b", "c": "refunded c"}
    assert len(lab.sent) == 3
    assert {step for step, _ in names(lab)} == {"order-a/refund#1", "order-b/refund#1", "order-c/refund#1"}


@virtual
async def test_tasks_of_a_group_and_plain_tasks_are_branches_too(lab: Lab):
    fetch, refund = slow_steps(lab, {"a": 2, "b": 1, "c": 2, "d": 1})
    told: list[object] = []

    async def handle(name: str) -> str:
        return await refund(await fetch(name))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        async with run.task_group() as group:
            grouped = [group.create_task(handle("a")), group.create_task(handle("b"))]
        plain = [asyncio.create_task(handle("c")), asyncio.create_task(handle("d"))]
        gathered = await asyncio.gather(*plain)
        told.append([*(task.result() for task in grouped), *gathered])
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert told == [[f"refunded {name}" for name in "abcd"]] * 2
    assert lab.sent == ["b", "a", "d", "c"]


@virtual
async def test_completions_replay_in_recorded_order_for_asyncio_wait_too(lab: Lab):
    fetch, refund = slow_steps(lab, {"slow": 5, "fast": 1})
    told: list[list[str]] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        tasks = {asyncio.create_task(fetch("slow"), name="slow"), asyncio.create_task(fetch("fast"), name="fast")}
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = sorted(task.get_name() for task in done)
        told.append(first)
        await refund(f"after {first}")
        await asyncio.wait(rest)
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert told == [["fast"], ["fast"]]
    assert lab.sent == ["after ['fast']"]


@virtual
async def test_two_tasks_in_one_branch_are_refused_on_the_first_run(lab: Lab):
    _, refund = slow_steps(lab, {})

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        scope = run._root

        async def stray() -> str:
            from beforehand.engine.active_run.scopes import SCOPE

            SCOPE.set(scope)
            return await refund("b")

        await asyncio.create_task(stray())

    async with lab.app(desk) as app:
        with pytest.raises(AmbiguousStep, match=r"run\.gather or run\.map"):
            await app.run(desk, "x")
    assert lab.sent == []
    assert lab.of("r-x", r.RunStoppedRecord)[0].reason == "diverged"


@virtual
async def test_a_named_branch_names_its_steps_and_is_named_once(lab: Lab):
    _, refund = slow_steps(lab, {})

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        with run.branch("first"):
            await refund("a")
            await run.gather(refund("b"))
        await refund("c")
        with pytest.raises(UsageError, match="two branches of one run are named 'first'"), run.branch("first"):
            pass
        for bad in ("", "a/b", "a~b", "a\nb"):
            with pytest.raises(UsageError, match="cannot name a branch"), run.branch(bad):
                pass

    async with lab.app(desk) as app:
        await app.run(desk, "x")
    assert [started.step for started in lab.of("r-x", r.AttemptStarted)] == [
        "first/refund#1", "first/~1/refund#1", "refund#1",
    ]  # fmt: skip


@virtual
async def test_an_explicit_step_is_named_once(lab: Lab):
    _, refund = slow_steps(lab, {})

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        assert await refund.options(step="the refund")("a") == "refunded a"
        with pytest.raises(UsageError, match="'the refund' is named twice"):
            await refund.options(step="the refund")("a")

    async with lab.app(desk) as app:
        await app.run(desk, "x")
    assert lab.sent == ["a"]


@virtual
async def test_tasks_that_a_tool_starts_are_no_branches(lab: Lab):
    @tool
    async def both(name: str) -> list[str]:
        async def part(letter: str) -> str:
            return name + letter

        return list(await asyncio.gather(part("1"), asyncio.create_task(part("2"))))

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        first = await both("a")
        return [*first, *await run.gather(both("b"))][:2]

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["a1", "a2"]
    assert [started.step for started in lab.of("r-x", r.AttemptStarted)] == ["both#1", "~1/both#1"]


@virtual
async def test_the_first_error_in_gather_cancels_the_others_and_replays(lab: Lab):
    seconds = {"a": 5.0}
    fetch, refund = slow_steps(lab, seconds)
    told: list[str] = []

    async def fails() -> str:
        await fetch("b")
        raise ValueError("no")

    async def goes_on() -> str:
        await fetch("a")
        return await refund("never")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            await run.gather(goes_on(), fails())
        except ValueError as error:
            told.append(str(error))
        assert await run.gather() == []
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert told == ["no", "no"]
    assert lab.sent == []


@virtual
async def test_a_run_is_not_used_outside_its_branches(lab: Lab):
    kept: list[Run] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        kept.append(run)
        return run.id

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "r-x"
        with pytest.raises(UsageError, match="used outside its own branches"):
            await kept[0].now()


@virtual
async def test_two_apps_in_one_loop_may_close_in_any_order(lab: Lab):
    _, refund = slow_steps(lab, {})

    async def one(name: str) -> str:
        return await refund(name)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await asyncio.gather(one("a"), one("b")))

    first, second = lab.make(desk), lab.make(desk)
    await first.open()
    await second.open()
    await first.aclose()
    assert await second.run(desk, "x") == ["refunded a", "refunded b"]
    await second.aclose()
    assert asyncio.get_running_loop().get_task_factory() is None
    assert {step for step, _ in names(lab)} == {"~1/refund#1", "~2/refund#1"}


@virtual
async def test_a_run_is_not_suspended_while_its_root_is_at_work_and_only_a_branch_waits(lab: Lab):
    async def ponder(seconds: int) -> str:
        await lab.pass_time(seconds=seconds)
        lab.sent.append("pondered")
        return "so be it"

    @tool(effect="read")
    async def fetch(seconds: int) -> str:
        await lab.pass_time(seconds=seconds)
        lab.sent.append("fetched")
        return "here"

    @tool
    async def send(seconds: int) -> str:
        await lab.pass_time(seconds=seconds)
        lab.sent.append("sent")
        return "gone"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        waiting = asyncio.create_task(run.wait_for("go"))
        done = [await run.decide(ponder, 20), await fetch(20), await send(20)]
        return [*done, await waiting]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="waits for go"):
            await app.run(desk, "x")
        assert lab.sent == ["pondered", "fetched", "sent"]
        await app.service.signal("r-x", "go", payload="went")
        assert await app.run(desk, "x") == ["so be it", "here", "gone", "went"]
    assert len(lab.of("r-x", r.RunSuspendedRecord)) == 1
    assert lab.sent == ["pondered", "fetched", "sent"]


@virtual
async def test_nested_gathers_pass_on_their_results_before_a_replay_counts_as_diverged(lab: Lab):
    fetch, refund = slow_steps(lab, {"slow": 5})

    async def nested(depth: int) -> None:
        if depth:
            await asyncio.gather(nested(depth - 1))
        else:
            await fetch("fast")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        slow = asyncio.create_task(fetch("slow"))
        await nested(5)
        await refund("between")
        await slow
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        await app.run(desk, "x")
    assert lab.sent == ["between"]


@virtual
async def test_what_an_ambiguous_step_advises_works(lab: Lab):
    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        assert current_operation().key
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        advised = name == "advised"

        async def node(name: str) -> str:
            if not advised:
                return await pay(name)
            with run.step(name):
                return await pay(name)

        # As a library does that starts tasks without asking the loop's task factory.
        loop = asyncio.get_running_loop()
        tasks = [asyncio.Task(node(one), loop=loop) for one in ("a", "b")]
        return await asyncio.gather(*tasks)

    async with lab.app(desk) as app:
        with pytest.raises(AmbiguousStep, match=r'with run.step\("call_9f2"\): ...'):
            await app.run(desk, "plain")
        assert await app.run(desk, "advised") == ["a", "b"]
        history = await app.service.history("r-advised")
    assert sorted(history.operations) == ["a/pay#1", "b/pay#1"]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("thread", [True, False])
@virtual
async def test_a_step_that_the_collector_closes_leaves_the_scope_of_that_task_alone(
    lab: Lab, inside: bool, thread: bool
):
    """It runs wherever the next object is made: a task of the runtime would become a branch of a dead run."""
    others = contextvars.Context()
    seen: list[object] = []

    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        assert current_operation().key
        await asyncio.sleep(3600)
        return name

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> None:
        own = SCOPE.get() if inside else None
        step = pay(name)
        step.send(None)
        others.run(SCOPE.set, own)
        if thread:
            with ThreadPoolExecutor() as pool:
                pool.submit(others.run, step.close).result()
        else:
            asyncio.get_running_loop().call_soon(step.close, context=others)
            await asyncio.sleep(0)
        seen.append(others[SCOPE] is own)
        await asyncio.sleep(3600)

    async with lab.app(desk) as app:
        app.start(desk, "x")
        await lab.pass_time(seconds=1)
        await lab.bury(app, lab.processes[-1])
    assert seen == [True]
