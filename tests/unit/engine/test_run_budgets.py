"""The budget of a run: model calls reserve and settle, effects count, and a limit that is reached stops what is new."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Natural, Operation, Run, RunSuspended, TransactionAborted, agent, tool
from beforehand.agent.hosted import in_hosted_run
from beforehand.errors import BudgetExceeded, RunStopped, UsageError
from beforehand.journal.port import Write
from beforehand.model import records as r
from beforehand.model.run_budget import BudgetState
from beforehand.policies import RunBudget
from beforehand.queues.limits import DeclaredLimits, SharedBudget
from tests.commits import Commit, intercept
from tests.unit.agent.test_hosted import in_host_tasks
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_crashes import DiesAt


def model_of(lab: Lab, *used: int | None):
    """A model whose calls use these tokens, one after the other; None states nothing."""
    left = list(used)

    async def ask(question: str) -> dict[str, Any]:
        lab.sent.append(f"ask {question}")
        tokens = left.pop(0) if left else 10
        return {"text": question} | ({} if tokens is None else {"usage": {"input_tokens": tokens, "output_tokens": 0}})

    return ask


def asking(lab: Lab, *used: int | None, calls: int = 4):
    """An agent that asks a model in turn."""
    ask = model_of(lab, *used)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        for number in range(calls):
            await run.decide(ask, f"{name} {number}")
        return calls

    return desk


def paying(lab: Lab, *amounts: int):
    """An agent that pays these amounts, one after the other."""

    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(str(cents))
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return [await pay(cents) for cents in amounts]

    return desk


async def budget_of(app: Any, run: str = "r-ann") -> BudgetState:
    budget = (await app.service.history(run)).budget
    assert budget is not None
    return budget


@virtual
async def test_a_model_is_not_called_beyond_its_limit_of_calls(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped) as stopped:
            await app.run(desk, "ann", budget=RunBudget(model_calls=2))
        assert stopped.value.reason == "budget"
        assert "beforehand budget r-ann --raise" in stopped.value.next_step
        assert (await budget_of(app)).model_calls == 2
    assert lab.sent == ["ask ann 0", "ask ann 1"]


@virtual
async def test_tokens_are_settled_from_what_was_used_and_the_last_call_may_exceed_the_limit(lab: Lab):
    desk = asking(lab, 60, 70, 80)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped):
            await app.run(desk, "ann", budget=RunBudget(tokens=100))
        budget = await budget_of(app)
    assert (budget.tokens, budget.open, budget.unknown) == (130, {}, 0)
    assert len(lab.sent) == 2


@pytest.mark.parametrize(
    ("budget", "durable"),
    [
        (RunBudget(effects=5), False),
        (RunBudget(tokens=5_000), True),
        (RunBudget(model_calls=5), True),
        (RunBudget(effects=5, tokens=5_000), True),
    ],
)
def test_a_model_waits_for_the_record_of_its_call_only_under_a_limit_of_model_calls(budget: RunBudget, durable: bool):
    @virtual
    async def story(lab: Lab) -> None:
        seen: list[bool] = []

        async def ask(question: str) -> str:
            seen.append(any(isinstance(record, r.DecisionStarted) for record in lab.durable("r-ann")))
            return question

        @agent(run_id="r-{name}")
        async def desk(run: Run, name: str) -> str:
            return await run.decide(ask, name)

        async with lab.app(desk) as app:
            assert await app.run(desk, "ann", budget=budget) == "ann"
            assert (await budget_of(app)).model_calls == 1
        assert seen == [durable]

    story()


@virtual
async def test_a_raised_budget_lets_the_run_go_on_and_nothing_is_asked_twice(lab: Lab):
    desk = asking(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped):
            await app.run(desk, "ann", budget=RunBudget(model_calls=2))
        await app.service.raise_budget("r-ann", {"model_calls": 2}, by="eve", why="a long case")
        assert await app.resume("r-ann") == 4
        assert (await budget_of(app)).model_calls == 4
    assert lab.sent == [f"ask ann {number}" for number in range(4)]
    assert [record.by for record in lab.of("r-ann", r.BudgetRaised)] == ["eve"]


@virtual
async def test_a_refused_question_is_asked_after_all_once_the_budget_is_raised(lab: Lab):
    desk = asking(lab, calls=2)
    async with lab.app(desk) as app:
        with pytest.raises(BudgetExceeded):
            await app.run(desk, "ann", budget=RunBudget(model_calls=1, then="stop"))
        await app.service.raise_budget("r-ann", {"model_calls": 1}, by="eve")
        assert await app.resume("r-ann") == 2
    assert lab.sent == ["ask ann 0", "ask ann 1"]


@virtual
async def test_code_may_catch_that_its_budget_is_spent_and_replay_gives_it_the_same(lab: Lab):
    ask = model_of(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await run.decide(ask, "one")
        try:
            await run.decide(ask, "two")
        except BudgetExceeded as error:
            await run.sleep(timedelta(days=1))
            return error.known
        return name

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann", budget=RunBudget(model_calls=1, then="stop"))
        await app.service.raise_budget("r-ann", {"model_calls": 5}, by="eve")
    await asyncio.sleep(86_401)
    async with lab.app(desk) as app:
        assert await app.resume("r-ann") == "nothing was sent for this call"
    assert lab.sent == ["ask one"]


@virtual
async def test_a_limit_of_effects_stops_the_next_write_and_a_raise_sends_it(lab: Lab):
    desk = paying(lab, 1, 2, 3)
    async with lab.app(desk) as app:
        with pytest.raises(RunStopped) as stopped:
            await app.run(desk, "ann", budget=RunBudget(effects=2))
        assert stopped.value.reason == "budget"
        assert lab.sent == ["1", "2"]
        await app.service.raise_budget("r-ann", {"effects": 1}, by="eve")
        assert await app.resume("r-ann") == ["paid"] * 3
    assert lab.sent == ["1", "2", "3"]


@pytest.mark.parametrize("claims", [False, True])
@virtual
async def test_of_parallel_writes_no_more_are_sent_than_the_limit_permits(lab: Lab, claims: bool):
    @tool(claim="order" if claims else ())
    async def pay(order: str) -> str:
        await asyncio.sleep(1)
        lab.sent.append(order)
        return "paid"

    @agent(run_id="r-{name}", budget=RunBudget(effects=2, then="stop"))
    async def desk(run: Run, name: str) -> list[str]:
        done = await run.gather(*(pay.outcome(f"{name}-{number}") for number in range(5)))
        return [one.code or one.status for one in done]

    async with lab.app(desk) as app:
        ended = await app.run(desk, "ann")
        budget = await budget_of(app)
    assert 1 <= len(lab.sent) <= 2
    assert (budget.effects, ended.count("budget_exceeded")) == (len(lab.sent), 5 - len(lab.sent))


@virtual
async def test_an_effect_that_a_dead_process_may_have_sent_counts(lab: Lab):
    desk = paying(lab, 1, 2)
    app = lab.make(desk, crash=(crash := DiesAt("after_send", 1)))
    crash.process = lab.processes[-1]
    await app.open()
    running = asyncio.create_task(app.run(desk, "ann", budget=RunBudget(effects=1)))
    await asyncio.sleep(1)
    running.cancel()
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        assert (await budget_of(app)).effects == 1, "it may be there, and a person is asked"
        await app.service.resolve("r-ann/pay#1", "did_not_happen", by="eve")
        assert (await budget_of(app)).effects == 0
    assert lab.sent == ["1"]


@virtual
async def test_a_refused_effect_is_an_outcome_that_code_may_catch(lab: Lab):
    desk = paying(lab, 1, 2)
    async with lab.app(desk) as app:
        with pytest.raises(BudgetExceeded, match="the limit of effects is reached: 1 of 1 used"):
            await app.run(desk, "ann", budget=RunBudget(effects=1, then="stop"))
        stopped = (await app.service.history("r-ann")).lifecycle.stopped
    assert stopped is not None
    assert (stopped.reason, lab.sent) == ("budget", ["1"])


@virtual
async def test_parallel_calls_are_begun_only_while_what_they_reserve_is_left(lab: Lab):
    gate = asyncio.Event()

    async def ask(question: int) -> dict[str, Any]:
        lab.sent.append(f"ask {question}")
        await gate.wait()
        return {"usage": {"input_tokens": 40, "output_tokens": 0}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return len(await asyncio.gather(*(run.decide(ask, number) for number in range(8))))

    async with lab.app(desk) as app:
        running = asyncio.create_task(app.run(desk, "ann", budget=RunBudget(model_calls=3)))
        await asyncio.sleep(1)
        assert len(lab.sent) == 3
        gate.set()
        with pytest.raises(RunStopped):
            await running
        budget = await budget_of(app)
    assert (budget.model_calls, budget.tokens) == (3, 120)


@virtual
async def test_a_call_waits_for_what_others_in_flight_may_give_back(lab: Lab):
    async def ask(question: int) -> dict[str, Any]:
        lab.sent.append(f"ask {question}")
        await asyncio.sleep(question + 1)
        return {"usage": {"input_tokens": 1, "output_tokens": 0}}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        await run.decide(ask, 0)
        return len(await asyncio.gather(*(run.decide(ask, number) for number in range(20, 24))))

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann", budget=RunBudget(tokens=6)) == 4
        assert (await budget_of(app)).tokens == 5


@virtual
async def test_the_reservation_is_durable_before_the_model_is_called(lab: Lab):
    durable: list[int] = []

    async def ask(question: str) -> str:
        durable.append(len([one for one in lab.durable("r-ann") if isinstance(one, r.DecisionStarted)]))
        return question

    @agent(run_id="r-{name}", budget=RunBudget(tokens=1000))
    async def desk(run: Run, name: str) -> str:
        return await run.decide(ask, name) + await run.decide(ask, name)

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert durable == [1, 2]


@virtual
async def test_what_a_lost_call_used_is_its_reservation(lab: Lab):
    forever = asyncio.get_running_loop().create_future()

    async def ask(question: str) -> str:
        lab.sent.append(question)
        if len(lab.sent) == 1:
            await forever
        return question

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.decide(ask, name)

    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    running = asyncio.create_task(app.run(desk, "ann", budget=RunBudget(tokens=1000, model_calls=2)))
    await asyncio.sleep(1)
    reserved = next(one for one in lab.durable("r-ann") if isinstance(one, r.DecisionStarted)).reserved
    assert reserved > 0
    await lab.bury(app, process)
    running.cancel()
    async with lab.app(desk) as app:
        assert await app.resume("r-ann") == "ann"
        budget = await budget_of(app)
    assert (budget.model_calls, budget.tokens, budget.unknown) == (2, 2 * reserved, 2)


@virtual
async def test_a_service_that_is_not_reached_uses_nothing(lab: Lab):
    async def ask(question: str) -> str:
        lab.sent.append(question)
        if len(lab.sent) < 4:
            raise ConnectionRefusedError(111, "connection refused")
        return question

    @agent(run_id="r-{name}", budget=RunBudget(tokens=1000, model_calls=1))
    async def desk(run: Run, name: str) -> str:
        return await run.decide(ask, name)

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ann"
        budget = await budget_of(app)
    assert (len(lab.sent), budget.model_calls, budget.unknown) == (4, 1, 1)


@virtual
async def test_a_try_whose_answer_was_not_used_counts(lab: Lab):
    async def ask(question: str) -> int:
        lab.sent.append(question)
        return {"usage": {"input_tokens": 40, "output_tokens": 0}}  # type: ignore[return-value]  # it does not fit

    @agent(run_id="r-{name}", budget=RunBudget(tokens=100, then="stop"))
    async def desk(run: Run, name: str) -> int:
        return await run.decide(ask, name)

    async with lab.app(desk) as app:
        with pytest.raises(BudgetExceeded):
            await app.run(desk, "ann")
        assert (await budget_of(app)).tokens == 120
    assert len(lab.sent) == 3


@virtual
async def test_compensations_are_sent_though_the_budget_is_spent_and_held_effects_count(lab: Lab):
    @tool
    async def mail(name: str) -> str:
        lab.sent.append(f"mail {name}")
        return name

    @tool
    async def book(name: str) -> str:
        lab.sent.append(f"book {name}")
        return name

    @book.compensate(restores=True)
    @tool(idempotency=Natural(within=timedelta(hours=1)))
    async def unbook(operation: Operation[str], name: str) -> None:
        lab.sent.append(f"unbook {name}")

    @agent(run_id="r-{name}", budget=RunBudget(effects=2, then="stop"))
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await run.on_commit(mail, name)
            await book(name)
            await book("once more")
        return name

    async with lab.app(desk) as app:
        with pytest.raises(TransactionAborted, match="the limit of effects is reached"):
            await app.run(desk, "ann")
        assert (await budget_of(app)).effects == 1, "the booking that was undone; the mail was never sent"
    assert lab.sent == ["book ann", "unbook ann"]


@virtual
async def test_the_budget_of_a_run_holds_for_the_model_calls_of_its_host(lab: Lab):
    asked: list[int] = []

    @agent(run_id="r-{name}", budget=RunBudget(model_calls=2))
    async def desk(run: Run, name: str) -> int:
        async def turn(number: int) -> Any:
            async def model() -> dict[str, Any]:
                asked.append(number)
                return {"usage": {"input_tokens": 5, "output_tokens": 1}}

            return await in_hosted_run("a model").turn(f"turn-{number}", {"messages": [number]}, model)

        return len([await in_host_tasks(lambda number=number: turn(number)) for number in range(3)])

    async with lab.app(desk) as app:
        with pytest.raises(RunStopped) as stopped:
            await app.run(desk, "x")
        assert (stopped.value.reason, asked) == ("budget", [0, 1])
        await app.service.raise_budget("r-x", {"model_calls": 1}, by="eve")
        assert await app.resume("r-x") == 3
    assert asked == [0, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tokens": -1}, "tokens=-1"),
        ({"tokens": 1.5}, "tokens=1.5"),
        ({"effects": True}, "effects=True"),
        ({"model_calls": 2**53}, "model_calls=9007199254740992"),
        ({}, "a budget needs a limit"),
        ({"tokens": 1, "then": "panic"}, "then='panic'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], says: str):
    with pytest.raises(ValueError, match=says):
        RunBudget(**wrong)


@virtual
async def test_what_cannot_be_raised_is_named(lab: Lab):
    desk = asking(lab, calls=1)
    async with lab.app(desk) as app:
        await app.run(desk, "ben")
        with pytest.raises(UsageError, match="has no budget"):
            await app.service.raise_budget("r-ben", {"tokens": 1}, by="eve")
        await app.run(desk, "ann", budget=RunBudget(tokens=1000))
        with pytest.raises(UsageError, match="is completed"):
            await app.service.raise_budget("r-ann", {"tokens": 1}, by="eve")


@virtual
async def test_branches_that_share_a_budget_with_other_runs_do_not_both_take_the_last_room_of_their_own(lab: Lab):
    ask = model_of(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        return len(await run.gather(*(run.decide(ask, f"{name} {number}") for number in range(3))))

    async with lab.app(desk, queues=DeclaredLimits(budgets={"all": SharedBudget(model_calls=100)})) as app:
        with pytest.raises(RunStopped):
            await app.run(desk, "ann", budget=RunBudget(model_calls=1))
        assert len(lab.sent) == 1
        await app.service.raise_budget("r-ann", {"model_calls": 2}, by="eve")
        assert await app.resume("r-ann") == 3
    assert sorted(lab.sent) == [f"ask ann {number}" for number in range(3)]


@pytest.mark.parametrize("before", [True, False], ids=["as it stops", "as a call of the stopped run ends"])
def test_a_budget_that_is_raised_while_a_process_releases_the_run_counts(before: bool):
    @virtual
    async def story(lab: Lab) -> None:
        desk = asking(lab)
        async with lab.app(desk) as first, lab.app(desk, recover=True) as other:
            raised: list[bool] = []

            async def raised_meanwhile(write: Write, commit: Commit) -> None:
                if write.change is not None and write.change.status == "stopped" and not raised:
                    raised.append(True)
                    await other.service.raise_budget("r-ann", {"model_calls": 9}, by="eve")
                await commit(write)

            if before:
                intercept(lab.journal, Write, raised_meanwhile)
            with pytest.raises(RunStopped):
                await first.run(desk, "ann", budget=RunBudget(model_calls=2))
            if not before:
                intercept(lab.journal, Write, raised_meanwhile)
                with pytest.raises(RunStopped):
                    await first.run(desk, "ann")
            await lab.pass_time(minutes=1)
        assert len(lab.of("r-ann", r.RunCompleted)) == 1

    story()
