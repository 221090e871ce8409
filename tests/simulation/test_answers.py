"""Outcomes that come later: each trap of a webhook, with a kill at every point that any process comes by."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from simulator import failure
from simulator.generator.deferred import HOOK_FAULTS
from simulator.plan import Fault, Plan, Script, Step, WorkerPlan
from simulator.transcripts import parts_of, plan_of
from simulator.world import Report, simulate
from tests.draws import spread

pytestmark = pytest.mark.deeper

WORKERS = (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", restart_ms=5_000))


def of(*steps: Step, faults: tuple[Fault, ...] = ()) -> Plan:
    return Plan(5, (Script("run", steps),), WORKERS, faults)


def checked(told: Plan) -> Report:
    report = simulate(told, story=True)
    assert not report.violations, failure.tell(report)
    return report


def killed_everywhere(told: Plan) -> Iterator[Report]:
    for at in spread(range(1, checked(told).points + 1)):
        yield checked(replace(told, faults=(*told.faults, Fault("kill", at))))


def answered(report: Report) -> set[str]:
    """How operations ended that were on record as accepted."""
    return {name.removeprefix("answer to ") for name in report.reach.endings if name.startswith("answer to ")}


def ended(report: Report) -> set[str]:
    return {" ".join(name.split()[:2]) for name in report.reach.endings if not name.startswith("answer to ")}


@pytest.mark.parametrize("kind", sorted(set(HOOK_FAULTS) - {"never"}))
def test_whatever_becomes_of_its_webhook_an_answer_counts_once(kind: str):
    told = of(Step("rent", "flat"), Step("charge", "card"), faults=(Fault(kind, 1, "rent hook", 9_000),))
    for report in killed_everywhere(told):
        assert answered(report) == {"rent succeeded"}


@pytest.mark.parametrize("kind", ["rent", "visa", "permit"])
def test_an_answer_that_overtakes_our_own_response_is_kept_for_it(kind: str):
    """Where the number is lost with its process, it cannot be known for what the answer was: that is asked about."""
    told = of(Step(kind, "it"), faults=(Fault("at_once", 1, f"{kind} case"),))
    for report in killed_everywhere(told):
        assert ended(report) in ({f"{kind} succeeded"}, {"permit unknown"})
        assert answered(report) <= {f"{kind} succeeded"}


@pytest.mark.parametrize("kind", ["rent", "visa", "permit"])
def test_a_refusal_that_comes_later_fails_it(kind: str):
    assert answered(checked(of(Step(kind, "it"), faults=(Fault("declined", 1, f"{kind} case"),)))) == {f"{kind} failed"}


def test_no_answer_in_time_is_asked_about_and_never_a_failure():
    told = of(Step("rent", "flat"), faults=(Fault("never", 1, "rent hook"),))
    for report in killed_everywhere(told):
        assert answered(report) == {"rent unknown"}


def test_where_it_can_be_read_back_no_webhook_is_needed():
    told = of(Step("visa", "it"), faults=(Fault("never", 1, "visa hook"),))
    for report in killed_everywhere(told):
        assert ended(report) == {"visa succeeded"}


@pytest.mark.parametrize("kind", ["rent", "permit"])
def test_an_answer_after_the_deadline_is_evidence(kind: str):
    told = of(Step(kind, "it"), faults=(Fault("slowly", 1, f"{kind} case", 60_000),))
    assert answered(checked(told)) == {f"{kind} succeeded"}


def test_a_number_that_is_given_out_twice_belongs_to_the_first():
    scripts = (Script("one", (Step("permit", "it"),)), Script("two", (Step("pay", "bill"), Step("permit", "that"))))
    faults = (Fault("number_again", 2, "permit case"),)
    told = Plan(5, scripts, (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", scripts=(1,))), faults)
    assert answered(checked(told)) == {"permit succeeded", "permit unknown"}


def test_a_model_that_asks_again_is_told_and_not_obeyed():
    told = of(Step("nag", "it"), Step("charge", "card"))
    assert ended(checked(told)) == {"permit succeeded", "permit cancelled", "charge succeeded"}
    for report in killed_everywhere(told):
        assert "charge succeeded" in ended(report) or ended(report) == {"permit unknown"}


def test_an_answer_settles_what_a_run_left_open_that_a_person_took_over():
    """Seed 1771: the run is handed over while the office still works, and is never driven again."""
    hand_over = Step("hand_over", "q0", 1, 600_000)
    scripts = (Script("run-0", (Step("insist", "again", ms=180_000), hand_over)), Script("run-1", ()))
    faults = (Fault("both", 1, "question"),)
    assert "rent succeeded" in answered(
        checked(
            Plan(1771, scripts, (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", scripts=(1,))), faults, policy=True)
        )
    )


def test_an_answer_that_was_taken_back_before_its_operation_waited_is_noticed_after_a_power_cut():
    """The power is cut between the two commands that its messages become."""
    assert not parts_of(plan_of(26_417))[0]["violations"]
