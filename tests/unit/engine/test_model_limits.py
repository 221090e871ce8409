"""Limits of models: calls and tokens, estimated before and settled after, over all processes on one journal."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from beforehand import Run, RunSuspended, agent
from beforehand.errors import BudgetExceeded, ModelError, RunStopped, UsageError
from beforehand.journal.cells import limit_uses
from beforehand.journal.record_codec import decode_all
from beforehand.model.records import DecisionRecorded
from beforehand.model.usage import Usage
from beforehand.policies import RunBudget
from beforehand.queues.call_limits import CallLimit, ModelLimit
from beforehand.queues.limits import DeclaredLimits, SharedBudget, TenantLimits
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_call_limits import gaps, known_to_all


class Reply(msgspec.Struct):
    """An answer with its usage."""

    text: str
    usage: Usage = Usage()


class ModelServer:
    """A model server that notes when each call began, and how many were under way at most."""

    def __init__(self, lab: Lab, seconds: float = 1, tokens: int = 0) -> None:
        self.lab, self.seconds, self.tokens = lab, seconds, tokens
        self.now, self.most = 0, 0
        self.began: list[float] = []
        self.raises: list[Exception] = []
        self.answered_by = ""

    async def ask(self, name: str) -> Reply:
        self.began.append(round(self.lab.loop.time(), 3))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.now -= 1
        if self.raises:
            raise self.raises.pop(0)
        return Reply(name, Usage(input_tokens=self.tokens, model=self.answered_by))


def asking(server: ModelServer, model: str | tuple[str, ...] = "acme/big"):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def ask(name: str) -> Reply:
            return await server.ask(name)

        return (await run.options(model=model).decide(ask, name)).text

    return desk


def limited(**fields) -> DeclaredLimits:
    return DeclaredLimits(models={"acme/big": ModelLimit(**fields)})


@virtual
async def test_no_more_calls_of_a_model_are_under_way_in_two_processes(lab: Lab):
    server = ModelServer(lab)
    desk = asking(server)
    async with lab.app(desk, queues=limited(at_once=2)) as one, lab.app(desk) as two:
        await known_to_all(two)
        running = [app.start(desk, f"{number}-{at}") for number in range(6) for at, app in enumerate((one, two))]
        assert len({await run.result() for run in running}) == 12
        await lab.pass_time(seconds=1)
        assert {use.name: use.permits for use in await limit_uses(lab.journal)} == {"model acme/big": ()}
    assert server.most == 2
    assert max(server.began) < 15


@virtual
async def test_tokens_that_were_used_count_and_not_their_estimate(lab: Lab):
    server = ModelServer(lab, 0.001, tokens=100)
    desk = asking(server)
    async with lab.app(desk, hold_ms=10**9, queues=limited(tokens="600/minute")) as app:
        for name in ("a", "b", "c", "d"):
            await app.run(desk, name)
    assert gaps(server.began) == pytest.approx([10, 10, 10], abs=0.05), "100 tokens are due in 10 seconds"


@virtual
async def test_an_estimate_that_was_too_high_is_given_back(lab: Lab):
    server = ModelServer(lab, 1, tokens=600)
    desk = asking(server)
    async with lab.app(desk, hold_ms=10**9, queues=limited(tokens="600/minute")) as app:
        await app.run(desk, "large")
        server.tokens = 20
        await app.run(desk, "small")  # estimated at the 600 tokens of the largest one so far
        await app.run(desk, "after")
    assert gaps(server.began) == pytest.approx([60, 2], abs=1)


@virtual
async def test_a_call_whose_usage_is_unknown_counts_as_its_estimate(lab: Lab):
    server = ModelServer(lab, 0.001, tokens=300)
    desk = asking(server)
    async with lab.app(desk, hold_ms=10**9, queues=limited(tokens="600/minute")) as app:
        await app.run(desk, "known")
        server.tokens = 0
        await app.run(desk, "unknown")
        await app.run(desk, "after")
    assert gaps(server.began) == pytest.approx([30, 30], abs=0.1)


@virtual
async def test_retry_after_of_a_model_server_slows_every_process(lab: Lab):
    server = ModelServer(lab, 0.001)
    server.raises = [ModelError("too many requests", code="rate_limited", retry_after=20)]
    desk = asking(server)
    async with lab.app(desk, hold_ms=10**9, queues=limited()) as one, lab.app(desk, hold_ms=10**9) as two:
        await known_to_all(two)
        first = one.start(desk, "ann")
        await lab.pass_time(seconds=1)
        second = two.start(desk, "bob")
        assert [await first.result(), await second.result()] == ["ann", "bob"]
    assert server.began[0] < 1
    assert min(server.began[1:]) >= 20


@virtual
async def test_a_call_that_waits_long_suspends_its_run_which_goes_on_in_its_turn(lab: Lab):
    server = ModelServer(lab, 0.001)
    desk = asking(server)
    async with lab.app(desk, queues=limited(rate="1/hour"), recover=True) as app:
        await app.run(desk, "ann")
        with pytest.raises(RunSuspended, match="the limit of model acme/big is reached"):
            await app.run(desk, "bob")
        (line,) = await lab.journal.runs(run="r-bob")
        assert line.status == "suspended"
        assert 3_590_000 < line.due_ms - lab.clock.wall_ms() <= 3_600_000
        await lab.pass_time(hours=1, seconds=5)
        (line,) = await lab.journal.runs(run="r-bob")
        assert line.status == "completed"
    assert gaps(server.began) == pytest.approx([3600], abs=3)


@virtual
async def test_a_tenant_has_its_share_of_a_model(lab: Lab):
    server = ModelServer(lab, 5)
    desk = asking(server)
    shares = {"*": TenantLimits(models={"acme/big": ModelLimit(at_once=1)})}
    async with lab.app(desk, queues=DeclaredLimits(tenants=shares), recover=True) as app:
        for number in range(2):
            for tenant in ("acme", "zeta"):
                await app.submit(desk, f"{tenant}-{number}", tenant=tenant)
        await lab.pass_time(seconds=3)
        assert len(server.began) == 2
        await lab.pass_time(seconds=30)
        assert (len(server.began), server.most) == (4, 2)


@virtual
async def test_a_call_that_may_ask_several_models_gives_back_what_it_did_not_ask(lab: Lab):
    server = ModelServer(lab, 0.001, tokens=600)
    server.answered_by = "small"
    either = asking(server, ("acme/big", "small"))
    both = {"acme/big": ModelLimit(tokens="600/minute"), "small": ModelLimit(tokens="600/minute")}

    @agent(run_id="b-{name}")
    async def other(run: Run, name: str) -> str:
        async def ask(name: str) -> Reply:
            return await server.ask(name)

        return (await run.options(model="acme/big").decide(ask, name)).text

    async with lab.app(either, other, hold_ms=10**9, queues=DeclaredLimits(models=both)) as app:
        await app.run(either, "one")
        await app.run(other, "two")
        await app.run(either, "three")
    assert gaps(server.began)[0] < 1, "the large model was not asked by the first"
    assert gaps(server.began)[1] > 50


BOTH = ("acme/big", "small")


@pytest.mark.parametrize(
    ("asked", "answered_by", "charged"),
    [
        ("acme/big", "", ["acme/big"]),
        ("acme/big", "acme/big", ["acme/big"]),
        ("acme/big", "acme/big-0425", ["acme/big"]),
        (BOTH, "small", ["small"]),
        (BOTH, "acme/big", ["acme/big"]),
        (BOTH, "", [*BOTH]),
        (BOTH, "another", [*BOTH]),
    ],
)
@virtual
async def test_tokens_are_charged_to_the_model_that_answered_for_all_and_for_its_tenant(
    lab: Lab, asked: str | tuple[str, ...], answered_by: str, charged: list[str]
):
    server = ModelServer(lab, 0.001, tokens=300)
    server.answered_by = answered_by
    desk, both = asking(server, asked), {model: ModelLimit(tokens="600/minute") for model in BOTH}
    limits = DeclaredLimits(models=both, tenants={"*": TenantLimits(models=both)})
    async with lab.app(desk, queues=limits, recover=True) as app:
        await app.submit(desk, "ann", tenant="acme")
        await lab.pass_time(seconds=5)
        assert (await lab.journal.runs(run="r-ann"))[0].status == "completed"
        now_ns = lab.journal.clock().earliest_ms * 1_000_000
        due = {use.name for use in await limit_uses(lab.journal) if use.pace.due_ns - now_ns > 20 * 10**9}
    assert due == {f"tokens of {model}{whose}" for model in charged for whose in ("", " / tenant acme")}


@virtual
async def test_a_model_without_a_limit_asks_for_no_permit(lab: Lab):
    server = ModelServer(lab, 0.001)
    desk = asking(server, "other")
    async with lab.app(desk, queues=limited(at_once=1)) as app:
        await app.run(desk, "ann")
        assert await limit_uses(lab.journal) == []


@virtual
async def test_a_run_that_waits_for_its_budget_leaves_the_model_to_others(lab: Lab):
    """One branch waits for a person, another one for the model, so the run is not suspended."""
    server = ModelServer(lab, 0.001)
    desk = asking(server)

    @agent(run_id="poor-{name}", budget=RunBudget(model_calls=0, then="ask"))
    async def poor(run: Run, name: str) -> None:
        async def ask(name: str) -> Reply:
            return await server.ask(name)

        async def question(name: str) -> None:
            await run.options(step=name, model="acme/big").decide(ask, name)

        await run.gather(question("one"), question("two"))

    async with lab.app(desk, poor, queues=limited(at_once=1), recover=True) as app:
        stuck = app.start(poor, "p")
        await lab.pass_time(seconds=1)
        assert await asyncio.wait_for(app.run(desk, "ann"), 60) == "ann"
        with pytest.raises(RunStopped, match="the limit of model calls is reached"):
            await stuck.result()
    assert server.most == 1


@virtual
async def test_a_run_that_waits_for_a_shared_budget_leaves_the_model_to_others(lab: Lab):
    server = ModelServer(lab, 0.001)
    desk = asking(server)

    @agent(run_id="daily-{name}")
    async def daily(run: Run, name: str) -> None:
        async def ask(name: str) -> Reply:
            return await server.ask(name)

        for step in ("one", "two"):
            await run.options(step=step, model="acme/big").decide(ask, name)

    budgets = {"once": SharedBudget(agent="daily", model_calls=1)}
    limits = DeclaredLimits(models=limited(at_once=1).models, budgets=budgets)
    async with lab.app(desk, daily, hold_ms=10**9, queues=limits) as app:
        app.start(daily, "d")
        await lab.pass_time(seconds=1)
        assert len(server.began) == 1, "its second call waits for the next day"
        assert await asyncio.wait_for(app.run(desk, "ann"), 60) == "ann"


@virtual
async def test_a_call_that_was_not_made_counts_for_nothing(lab: Lab):
    server = ModelServer(lab, 0.001)
    desk = asking(server)

    @agent(run_id="refused-{name}", budget=RunBudget(model_calls=0, then="stop"))
    async def refused(run: Run, name: str) -> str:
        try:
            await run.options(model="acme/big").decide(server.ask, "nothing")
        except BudgetExceeded:
            return "refused"
        return "asked"

    async with lab.app(desk, refused, hold_ms=10**9, queues=limited(rate="1/hour")) as app:
        assert await app.run(refused, "r") == "refused"
        assert await app.run(desk, "ann") == "ann"
    assert server.began == [pytest.approx(0, abs=5)]


@virtual
async def test_the_only_model_that_may_be_asked_is_on_record_where_the_answer_names_none(lab: Lab):
    desk = asking(ModelServer(lab, 0.001))
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
        records = decode_all(row.body for row in await lab.journal.read("r-ann", limit=100))
        assert [one.model for one in records if isinstance(one, DecisionRecorded)] == ["acme/big"]


@virtual
async def test_retry_after_of_a_model_with_shares_alone_holds_for_calls_that_may_ask_another_one(lab: Lab):
    server = ModelServer(lab, 0.001)
    server.raises = [ModelError("too many requests", code="rate_limited", retry_after=20)]
    one = asking(server)
    limits = DeclaredLimits(
        models={"small": ModelLimit(at_once=5)}, tenants={"*": TenantLimits(models={"acme/big": ModelLimit(at_once=5)})}
    )

    @agent(run_id="either-{name}")
    async def second(run: Run, name: str) -> str:
        async def ask(name: str) -> Reply:
            return await server.ask(name)

        return (await run.options(model=("acme/big", "small")).decide(ask, name)).text

    async with lab.app(one, second, hold_ms=10**9, queues=limits) as app:
        first = app.start(one, "ann")
        await lab.pass_time(seconds=1)
        assert [await app.run(second, "bob"), await first.result()] == ["bob", "ann"]
    assert min(server.began[1:]) >= 20


@pytest.mark.parametrize(
    ("model", "remark"),
    [
        ("acme/bigg", "calls of the model acme/bigg are under no limit; the nearest limit is of acme/big"),
        ((), "r-a/ask#1 names no model, so limits of models do not hold for it; name it (run.options(model=...))"),
        ("other", None),
        (("acme/big", "acme/bigg"), None),
    ],
)
@virtual
async def test_a_call_that_a_limit_may_have_meant_is_named_once(
    lab: Lab, caplog: pytest.LogCaptureFixture, model: str | tuple[str, ...], remark: str | None
):
    desk, limits = asking(ModelServer(lab), model), DeclaredLimits(models={"acme/big": ModelLimit()})
    async with lab.app(desk, queues=limits) as app:
        await app.run(desk, "a")
        await app.run(desk, "b")
    assert caplog.messages == ([] if remark is None else [f"queues: {remark}"])


@virtual
async def test_without_limits_of_models_nothing_is_remarked(lab: Lab, caplog: pytest.LogCaptureFixture):
    desk = asking(ModelServer(lab), ())
    async with lab.app(desk, queues=DeclaredLimits(tools={"charge": CallLimit()})) as app:
        await app.run(desk, "a")
    assert caplog.messages == []


@pytest.mark.parametrize("wrong", ["", 5, object()])
@virtual
async def test_a_model_without_a_name_is_refused(lab: Lab, wrong: object):
    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> None:
        run.options(model=wrong)  # type: ignore[arg-type]  # the mistake that is tested

    async with lab.app(desk) as app:
        with pytest.raises(UsageError, match=r"names no model\. Known: no model was asked\. Next: give its name"):
            await app.run(desk, "a")
