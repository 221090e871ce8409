"""Plans: refused whole, executed in the order of their dependencies, and the same after a crash anywhere."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import (
    Ambiguous,
    Key,
    Natural,
    NotSent,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)
from beforehand.agent.conditions import ConditionError, holds, steps_used
from beforehand.errors import RunSuspended, UsageError
from beforehand.inspect.reader import waits_of
from beforehand.model import records as r
from beforehand.plans import Call, NewPlanNeeded, Plan, PlanRefused, PlanStep, PlanStepFailed
from beforehand.testing.world import World
from tests.unit.engine.lab import Lab, virtual

STEADY = Key.forever(stores="all")


@dataclass
class Flight:
    code: str
    price: int


@tool(effect="read")
async def search(city: str) -> list[Flight]:
    return [Flight("A1", 300), Flight("B2", 500)]


@tool(idempotency=STEADY)
async def book(code: str) -> Flight:
    _ = current_operation().key
    if code == "sold-out":
        raise Rejected("seat taken", code="409")
    return Flight(code, 300 if code == "A1" else 900)


@book.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(hours=1)))
async def cancel(operation: Operation[Flight]) -> str:
    return operation.result.code


@tool(idempotency=STEADY)
async def mail(to: str, text: str) -> str:
    _ = current_operation().key
    return f"{to}: {text}"


TOOLS = [search, book, mail]


def step(id: str, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> PlanStep:  # noqa: A002 - as in a plan
    more.setdefault("fallbacks", ())
    return PlanStep(id=id, primary=Call(tool, arguments or {}), **more)


TRIP = Plan(
    goal="go there",
    name="trip",
    steps=(
        step("find", "search", {"city": "Lisbon"}),
        step("seat", "book", {"code": "sold-out"}, fallbacks=(Call("book", {"code": {"$result": "find.0.code"}}),)),
        step("back", "book", {"code": "B2"}, after=("seat",), when="results.seat.price < 500"),
        step("tell", "mail", {"to": "a@example.com", "text": {"$result": "seat.code"}}, hold=True),
    ),
)


@agent(run_id="plan-{given.name}", tools=TOOLS)
async def planner(run: Run, given: Plan) -> dict[str, Any]:
    done = await run.execute(given)
    return {"results": done.results, "chosen": [f"{one.step} {one.chosen}" for one in done.chosen]}


def test_a_plan_runs_with_its_fallbacks_and_what_is_held_leaves_last(world: World):
    ran = world.run(planner, TRIP)
    assert ran.error is None
    assert ran.effects == ["book", "book", "mail"]
    assert ran.result is not None
    assert ran.result["chosen"] == ["find primary", "seat fallback 1", "back primary", "tell primary"]
    assert ran.result["results"]["seat"] == {"code": "A1", "price": 300}
    world.explore(planner, TRIP)


def test_a_step_that_is_not_needed_is_skipped(world: World):
    plan = msgspec.structs.replace(
        TRIP,
        steps=(*TRIP.steps[:2], step("back", "book", {"code": "B2"}, when="results.seat.price > 500", after=("seat",))),
    )
    ran = world.run(planner, plan)
    assert ran.result is not None
    assert ran.result["chosen"][-1] == "back skipped"
    assert ran.effects == ["book"]


def test_an_abort_condition_ends_in_the_rules_of_the_transaction(world: World):
    plan = Plan(
        goal="g", name="dear", steps=(step("seat", "book", {"code": "C3"}, abort_if=("results.seat.price > 500",)),)
    )
    ran = world.run(planner, plan)
    assert isinstance(ran.error, TransactionAborted)
    assert "results.seat.price > 500" in ran.error.reason
    assert ran.effects == ["book", "cancel"]
    world.explore(planner, plan)


def test_without_any_fallback_left_the_plan_fails_and_says_what_was_tried(world: World):
    plan = Plan(
        goal="g",
        name="none",
        together=False,
        steps=(step("seat", "book", {"code": "sold-out"}, fallbacks=(Call("book", {"code": "sold-out"}),)),),
    )
    ran = world.run(planner, plan)
    assert isinstance(ran.error, PlanStepFailed)
    assert str(ran.error).count("seat taken") == 2


def test_every_fault_is_listed_before_anything_runs(world: World):
    plan = Plan(
        goal="g",
        name="bad",
        steps=(
            step("a", "fly", {}),
            step("b", "book", {"kode": 1}, after=("nobody",)),
            step("c", "book", {"code": 7}, timeout_s=0),
            step("d", "book", {"code": {"$result": "c.colour"}}),
            step("e", "book", {"code": {"$result": "c.price"}}),
            step("f", "mail", {"to": "a", "text": "b"}),
            step("f", "search", {"city": "x"}),
            step("g", "mail", {"to": "a", "text": "b"}, hold=True, fallbacks=(Call("search", {"city": "x"}),)),
            step("h", "search", {"city": {"$result": "g"}}),
        ),
    )
    ran = world.run(planner, plan)
    assert isinstance(ran.error, PlanRefused)
    assert f"is refused for {len(ran.error.faults)} reasons: " in ran.error.message
    assert "\n" not in ran.error.message
    assert ran.effects == []
    listed = "\n".join(ran.error.faults)
    for part in (
        "step a: there is no tool 'fly'",
        "step b: book has no parameter 'kode'",
        "step b: book needs 'code'",
        "step b: there is no step 'nobody'",
        "step c: timeout_s is 0",
        "step c: book",
        "the result of c (book) has no 'colour'; it has: code, price",
        "c.price is int, and str is wanted",
        "mail cannot be undone: inside a transaction it needs hold",
        "there are 2 steps of this id",
        "step g: it is held, and what is sent at the commit has no fallback",
        "g is held: its result is known only after the commit",
    ):
        assert part in listed, part


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("results.seat.price <", "does not parse"),
        ("results.later.price > 1", "uses the result of 'later', which is not known then"),
        ("price > 1", "it uses price"),
        ("x" * 600, "characters"),
        ("[1].all(a,[1].all(b,[1].all(c, true)))", "more than 2"),
        ("[1]. all (a,[1]./**/all(b,[1].\nall(c, true)))", "more than 2"),
        ("['a'].all(x, x.matches('a'))", "matches together with"),
        ("spend(1)", "unknown function spend"),
        ('results["l\\x61ter"].price > 1', "it has a backslash"),
        ('results[r"later"].price > 1', "a letter before a quote"),
        ("input in ['x', '''y''']", "three quotes in a row"),
        ("results.`later`.price > 1", "a backtick"),
    ],
)
def test_conditions_that_cannot_be_judged_are_faults(world: World, condition: str, reason: str):
    steps = (step("seat", "book", {"code": "A1"}, abort_if=(condition,)), step("later", "search", {"city": "x"}))
    ran = world.run(planner, Plan(goal="g", name="odd", steps=steps))
    assert isinstance(ran.error, PlanRefused)
    assert reason in ran.error.faults[0]


def test_a_letter_at_the_end_of_a_text_and_a_pattern_in_brackets_are_read():
    condition = "results.seat.name.matches('^[0-9]+[.]bar') || results.seat.name in ['r', \"b's\"] // r'"
    assert steps_used(condition) == {"seat"}


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("1 / results.n == 1", "division by zero"),
        ("results.absent > 1", "cannot be evaluated"),
        ("results.n + 9223372036854775807 + 1 > 0", "overflow"),
        ("results.n", "neither true nor false"),
        ("results.many.all(x, results.many.all(y, true))", "rounds"),
        ("results.large == ''", "characters of values"),
    ],
)
def test_a_condition_without_an_answer_says_so_and_one_that_costs_too_much_is_not_begun(condition: str, reason: str):
    values = {"results": {"n": 0, "many": list(range(9000))}}
    if "large" in condition:
        values = {"results": {"large": "x" * 200_000}}
    with pytest.raises(ConditionError, match=reason):
        holds(condition, values)


def test_a_condition_may_look_at_every_item():
    assert steps_used("results.find.exists(one, one.price < 400)") == {"find"}
    assert holds("results.find.exists(one, one.price < 400)", {"results": {"find": [{"price": 500}, {"price": 300}]}})


@pytest.mark.parametrize("together", [True, False])
def test_a_run_can_execute_a_plan_of_the_same_name_again(world: World, together: bool):
    @agent(run_id="twice-{given.name}", tools=TOOLS)
    async def again(run: Run, given: Plan) -> list[str]:
        first = await run.execute(given)
        second = await run.execute(given)
        return [done.results["seat"]["code"] for done in (first, second)]

    plan = Plan(goal="g", name="t", together=together, steps=(step("seat", "book", {"code": "A1"}),))
    ran = world.run(again, plan)
    assert ran.result == ["A1", "A1"]
    world.explore(again, plan)


@virtual
async def test_what_a_step_asks_is_bound_to_its_plan(lab: Lab):
    plan = Plan(goal="g", name="careful", steps=(step("seat", "book", {"code": "A1"}, ask_if="input.cents > 5"),))

    @agent(run_id="b-{given}", tools=TOOLS)
    async def asking(run: Run, given: str) -> Any:
        return (await run.execute(plan, {"cents": 9})).results["seat"]["code"]

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended, match="b-x/careful/seat/book#1"):
            await app.run(asking, "x")
        (asked,) = waits_of(await app.service.row("b-x"))
        await app.service.decline(f"b-x/{asked.step}", by="ann")
        with pytest.raises(TransactionAborted, match="not approved"):
            await app.resume("b-x")


def test_steps_that_wait_for_each_other_are_a_fault(world: World):
    steps = (step("a", "search", {"city": "x"}, after=("b",)), step("b", "search", {"city": "x"}, after=("a",)))
    ran = world.run(planner, Plan(goal="g", name="round", steps=steps))
    assert isinstance(ran.error, PlanRefused)
    assert "a -> b -> a" in ran.error.faults[0]


@virtual
async def test_no_fallback_while_the_primary_is_unknown(lab: Lab):
    @tool
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        if cents == 1:
            raise Ambiguous("timeout")
        return "paid"

    @agent(run_id="p-{given}", tools=[pay])
    async def payer(run: Run, given: str) -> Any:
        steps = (step("pay", "pay", {"cents": 1}, fallbacks=(Call("pay", {"cents": 2}),)),)
        return (await run.execute(Plan(goal="g", steps=steps, together=False))).results["pay"]

    async with lab.app(payer) as app:
        with pytest.raises(RunSuspended):
            await app.run(payer, "x")
        assert lab.sent == ["pay 1"]
        await app.service.resolve("p-x/plan/pay/pay#1", "did_not_happen", by="ann")
        assert await app.resume("p-x") == "paid"
    assert lab.sent == ["pay 1", "pay 2"]
    chosen = [v for v in lab.of("p-x", r.ValueRecorded) if v.what == "chose"]
    assert b"fallback 1" in bytes(chosen[0].value)


@virtual
async def test_no_fallback_while_the_tool_itself_says_that_nobody_knows(lab: Lab):
    @tool(on_unknown="raise")
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        raise Ambiguous("timeout")

    @agent(run_id="u-{given}", tools=[pay])
    async def payer(run: Run, given: str) -> Any:
        steps = (step("pay", "pay", {"cents": 1}, fallbacks=(Call("pay", {"cents": 2}),)),)
        with pytest.raises(PlanStepFailed, match="outcome is unknown"):
            await run.execute(Plan(goal="g", steps=steps, together=False))
        return "told"

    async with lab.app(payer) as app:
        with pytest.raises(RunSuspended, match="an attempt may have landed"):
            await app.run(payer, "x")  # it heard so, and goes on; it cannot end before the outcome is known
        await app.service.resolve("u-x/plan/pay/pay#1", "did_not_happen", by="ann")
        assert await app.resume("u-x") == "told"
    assert lab.sent == ["pay 1"]


@virtual
async def test_an_approval_is_bound_to_the_digest_of_the_plan(lab: Lab):
    plan = Plan(goal="g", name="careful", steps=(step("seat", "book", {"code": "A1"}),))

    @agent(run_id="a-{given}", tools=TOOLS)
    async def asking(run: Run, given: str) -> Any:
        return (await run.execute(plan, approve=True)).results["seat"]["code"]

    async with lab.app(asking) as app:
        with pytest.raises(RunSuspended, match=plan.digest):
            await app.run(asking, "x")
        with pytest.raises(UsageError):
            await app.service.approve(f"a-x/approve-{'0' * 16}", by="ann")
        with pytest.raises(RunSuspended):
            await app.resume("a-x")
        await app.service.approve(f"a-x/approve-{plan.digest}", by="ann")
        assert await app.resume("a-x") == "A1"


@virtual
async def test_a_stale_precondition_asks_for_a_new_plan(lab: Lab):
    seats = iter([3, 2])

    @tool
    async def take(code: str) -> str:
        lab.sent.append(code)
        return code

    @take.observe
    def seats_left(operation: Operation[str]) -> int:
        return next(seats, 1)

    @agent(run_id="s-{given}", tools=[take, search])
    async def taker(run: Run, given: str) -> Any:
        steps = (step("find", "search", {"city": "x"}), step("take", "take", {"code": "A"}, after=("find",), hold=True))
        try:
            await run.execute(Plan(goal="g", steps=steps))
        except TransactionAborted as gone:
            return gone.reason
        return "taken"

    async with lab.app(taker) as app:
        assert "relies on is changed" in await app.run(taker, "x")
    assert lab.sent == []


@virtual
async def test_a_plan_whose_ground_has_shifted_says_what_is_known(lab: Lab):
    seats = iter([3, 2])

    @tool
    async def take(code: str) -> str:
        lab.sent.append(code)
        raise NotSent(retry_after=5)

    @take.observe
    def seats_left(operation: Operation[str]) -> int:
        return next(seats, 2)

    @agent(run_id="n-{given}", tools=[take, search])
    async def taker(run: Run, given: str) -> Any:
        steps = (step("find", "search", {"city": "x"}), step("take", "take", {"code": "A"}, after=("find",)))
        try:
            await run.execute(Plan(goal="g", steps=steps, together=False))
        except NewPlanNeeded as news:
            return f"{news.step} {sorted(news.results)}"
        return "taken"

    async with lab.app(taker) as app:
        assert await app.run(taker, "x") == "take ['find']"
    assert lab.sent == ["A"]
