"""`abort_if` of a plan step: evaluated before anything of the step is sent, unless it reads the step's own result."""

from datetime import timedelta

import msgspec
import pytest

from beforehand import Run, TransactionAborted, agent
from beforehand.agent.conditions import inputs_used, reads_result_of, steps_used
from beforehand.errors import RunSuspended
from beforehand.model import records as r
from beforehand.planning import executor
from beforehand.plans import Plan, PlanAborted, PlanStepFailed
from beforehand.testing.world import World
from tests.unit.agent.test_plans import TOOLS, TRIP, planner, step
from tests.unit.engine.lab import Lab, virtual


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("abort_if", "held"),
    [
        (("true",), "true"),
        (("results.find.size() > 9", "results.find[0].price < 400"), "results.find[0].price < 400"),
        (("input.absent",), "cannot be evaluated"),
    ],
)
def test_what_can_be_judged_before_a_step_is_judged_before_anything_of_it_is_sent(
    world: World, abort_if: tuple[str, ...], held: str, *, together: bool
):
    sends = step("tell", "mail", {"to": "a", "text": "b"}, after=("find",), abort_if=abort_if, hold=together)
    plan = Plan(goal="g", name="no", together=together, steps=(TRIP.steps[0], sends))
    ran = world.run(planner, plan)
    assert isinstance(ran.error, TransactionAborted if together else (PlanAborted, PlanStepFailed))
    assert held in str(ran.error)
    assert ran.effects == []


def test_a_step_is_called_off_before_a_person_is_asked_about_it(world: World):
    asks = step("seat", "book", {"code": "A1"}, ask_if="true", abort_if=("true",))
    ran = world.run(planner, Plan(goal="g", name="unasked", together=False, steps=(asks,)))
    assert isinstance(ran.error, PlanAborted)
    assert ran.effects == []


@virtual
async def test_the_judgement_is_on_record_and_a_replay_keeps_it(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    aborts = ("results.seat.price > 100", "size(results) > 7", "input.cents > 5")
    plan = Plan(goal="g", name="cheap", together=False, steps=(step("seat", "book", {"code": "A1"}, abort_if=aborts),))

    @agent(run_id="j-{cents}", tools=TOOLS)
    async def judged(run: Run, cents: int) -> str:
        try:
            await run.execute(plan, {"cents": cents})
        except PlanAborted as error:
            await run.sleep(timedelta(days=1))
            return str(error)
        return "went on"

    async with lab.app(judged) as app:
        for cents in (9, 1):
            with pytest.raises(RunSuspended):
                await app.run(judged, cents)
    before, after = (
        [
            (one.step, msgspec.json.decode(one.value)["held"])
            for one in lab.of(run, r.ValueRecorded)
            if "judged" in one.what
        ]
        for run in ("j-9", "j-1")
    )
    assert before == [("cheap/seat/judged:before#1", "input.cents > 5")]
    assert after == [("cheap/seat/judged:before#1", ""), ("cheap/seat/judged:after#1", "results.seat.price > 100")]
    assert not lab.of("j-9", r.AttemptStarted)

    def again(text: str, values: object) -> bool:
        pytest.fail(f"{text} was judged before, over {values}")

    monkeypatch.setattr(executor, "holds", again)
    await lab.pass_time(days=2)
    async with lab.app(judged) as app:
        assert "input.cents > 5" in await app.run(judged, 9)
        assert "results.seat.price > 100" in await app.run(judged, 1)


@pytest.mark.parametrize(
    ("condition", "reads"),
    [
        ("true", False),
        ("results.find.price > results.other.price", False),
        ("input.results > 5", False),
        ("input.note == 'results.seat'", False),
        ("true // results.seat", False),
        ("results.find.price > 1 || results.seat.price > 1", True),
        ("results [ 'seat' ].price > 1", True),
        ('has(results["seat"].price)', True),
        ("size(results) > 1", True),
        ("results[input.name].price > 1", True),
        ("results // which\n.seat.price > 1", True),
    ],
)
def test_which_conditions_read_the_result_of_their_own_step(condition: str, *, reads: bool):
    assert reads_result_of(condition, "seat") is reads


def test_a_text_in_a_condition_names_neither_a_step_nor_an_input():
    text = "input['to'] == 'results.later' || input.note == \"input.other\" || results['find'] == ' + input'"
    assert steps_used(text) == {"find"}
    assert inputs_used(text) == {"to", "note"}
