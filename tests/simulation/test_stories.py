"""Stories that once went wrong, or would in a careless runtime, each as a small plan of its own."""

from pathlib import Path

import pytest

from simulator import failure
from simulator.failure import shrink
from simulator.plan import Fault, Plan, Script, Step, WorkerPlan
from simulator.world import Report, World, simulate
from tests.draws import spread

A = WorkerPlan("A", scripts=(0,))
B = WorkerPlan("B", scripts=(1,), restart_ms=5_000)
SECOND = 2_000


def plan(*faults: Fault, steps: tuple[str, ...] = ("charge",), workers: tuple[WorkerPlan, ...] = (A,)) -> Plan:
    scripts = tuple(
        Script(f"run-{number}", tuple(Step(kind, kind) for kind in steps)) for number in range(len(workers))
    )
    return Plan(7, scripts, workers, faults)


def checked(told: Plan) -> Report:
    report = simulate(told, story=True)
    assert not report.violations, failure.tell(report)
    return report


def ended(report: Report) -> set[str]:
    """How operations ended, without the rule that said so."""
    return {" ".join(name.split()[:2]) for name in report.reach.endings if not name.startswith("time limit")}


def test_a_refusal_of_the_second_attempt_does_not_hide_the_first_one_that_landed():
    told = plan(Fault("reply_lost", 1, "mail"), Fault("rejected", 2, "mail"), steps=("mail",))
    assert ended(checked(told)) == {"mail succeeded"}


def test_the_keys_one_answer_ends_a_keyed_write():
    told = plan(Fault("error_after", 1, "pay"), steps=("pay",))
    assert ended(checked(told)) == {"pay succeeded"}


def test_preconditions_that_our_own_effect_changed_are_not_a_failure():
    told = plan(Fault("reply_lost", 1, "switch"), steps=("switch",))
    assert ended(checked(told)) == {"switch succeeded"}


def test_somebody_who_set_the_same_thing_meanwhile_is_not_overwritten():
    checked(plan(Fault("garbage", 1, "switch"), Fault("other_actor", 2, "switch"), steps=("switch",)))


def test_a_plain_write_with_a_lost_reply_asks_a_person():
    told = plan(Fault("reply_lost", 1, "ship"), steps=("ship",))
    assert ended(checked(told)) == {"ship unknown"}


def test_a_service_that_says_yes_and_does_nothing_is_not_believed():
    told = plan(Fault("lie", 1, "order"), steps=("order",))
    assert ended(checked(told)) == {"order unknown"}


def test_what_lands_late_is_waited_for_and_not_sent_twice():
    told = plan(Fault("late", 1, "mail", 19_000), steps=("mail",))
    assert ended(checked(told)) == {"mail succeeded"}


def test_two_runs_book_one_thing_once():
    told = plan(Fault("kill", 12), steps=("book",), workers=(A, B))
    report = checked(told)
    assert report.reach.records["OutcomeReused"] == 1


@pytest.mark.parametrize("at", range(1, 40))
def test_a_pause_past_the_lease_and_a_late_awakening(at: int):
    checked(plan(Fault("pause", at, ms=120_000), steps=("mail", "charge"), workers=(A, B)))


@pytest.mark.parametrize("at", range(1, 40, 2))
def test_a_shutdown_between_an_intent_and_its_outcome(at: int):
    checked(plan(Fault("shutdown", at), Fault("pause", at + 1, ms=30_000), steps=("ship", "note"), workers=(A, B)))


def test_webhooks_that_come_twice_or_to_a_worker_that_dies_are_heard_once():
    for at in range(8, 40):
        report = checked(plan(Fault("kill", at), steps=("transfer",)))
        assert report.reach.records["EventReceived"] == 1


def test_a_jump_of_the_clock_believes_no_absence_early():
    checked(plan(Fault("late", 1, "mail", 19_000), Fault("clock_jump", 9, ms=600_000), steps=("mail",)))


def test_a_plan_makes_the_trip_through_json():
    told = plan(Fault("pause", 3, ms=5), workers=(A, B))
    assert failure.load(failure.save(told)) == told


def test_a_failing_plan_is_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With a checker that cannot bear pauses, what is left of a plan full of faults is one pause."""

    def intolerant(told: Plan) -> Report:
        world = World(told, story=True)
        strike = world.nemesis.reached

        def reached(actor: object, label: str, about: str) -> bool:
            paused = strike(actor, label, about)  # type: ignore[arg-type]  # an actor, handed through
            if paused:
                world.checker.broken(19, "somebody stood still")
            return paused

        monkeypatch.setattr(world.nemesis, "reached", reached)
        return world.simulate()

    faults = (*(Fault("slow", at, ms=2_000) for at in range(1, 9)), Fault("pause", 12, ms=90_000), Fault("kill", 15))
    small = shrink(plan(*faults, steps=("charge", "mail", "ship")), intolerant)
    assert [fault.kind for fault in small.faults] == ["pause"]
    assert "somebody stood still" in failure.tell(intolerant(small))
    (tmp_path / "story.json").write_bytes(failure.save(small))
    assert failure.load((tmp_path / "story.json").read_bytes()) == small


@pytest.mark.deeper
def test_a_call_whose_caller_left_does_not_end_unheard_when_the_journal_fails():
    """The mail is refused for a while, its caller has given up, and the disk is full when it is tried again."""
    steps = (Step("hurry", "letter"), Step("ship", "box"))
    faults = (Fault("busy", 1, "mail", 6_209),)
    told = Plan(7, (Script("run-0", steps),), (A,), faults)
    for at in spread(range(1, checked(told).points + 1)):
        checked(Plan(7, told.scripts, (A,), (*faults, Fault("disk_full", at, ms=17_000))))


def test_an_attempt_that_was_given_up_before_its_call_does_not_keep_its_successor_waiting():
    """Its caller's time is over when the process wakes up, and by then another one has the run."""
    workers = (*(WorkerPlan(name, scripts=(number,)) for number, name in enumerate("ABC")),)
    steps: tuple[tuple[Step, ...], ...] = ((), (Step("hurry", "run-1-first"),), ())
    scripts = tuple(Script(f"run-{number}", one) for number, one in enumerate(steps))
    checked(Plan(101877, scripts, workers, (Fault("pause", 23, ms=41_233),), disk_ms=1))
