"""Traps of `hard_cases/test_every_case.py` that are about time and death: each played through at every point."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from simulator import failure
from simulator.plan import Fault, Permit, Plan, Script, Step, Telling, WorkerPlan
from simulator.world import Journal, Report, simulate
from tests.draws import spread

pytestmark = pytest.mark.deeper

WORKERS = (WorkerPlan("A", scripts=(0,)), WorkerPlan("B", restart_ms=5_000))


def of(
    *steps: Step,
    faults: tuple[Fault, ...] = (),
    permits: tuple[Permit, ...] = (),
    tellings: tuple[Telling, ...] = (),
) -> Plan:
    return Plan(11, (Script("run", steps),), WORKERS, faults, permits=permits, tellings=tellings)


def checked(told: Plan, journal: Journal = "memory") -> Report:
    report = simulate(told, story=True, journal=journal)
    assert not report.violations, failure.tell(report)
    return report


def struck_everywhere(told: Plan, kind: str, ms: int = 0, journal: Journal = "memory") -> Iterator[Report]:
    """The plan with one more fault, at each of its points in turn."""
    for at in spread(range(1, checked(told, journal).points + 1)):
        yield checked(replace(told, faults=(*told.faults, Fault(kind, at, ms=ms))), journal)


def ended(report: Report) -> set[str]:
    return {" ".join(name.split()[:2]) for name in report.reach.endings if not name.startswith("time limit")}


def test_an_unknown_write_is_told_to_nobody_and_sent_once():
    told = of(Step("ship", "box"), Step("charge", "card"), faults=(Fault("reply_lost", 1, "ship"),))
    for report in struck_everywhere(told, "kill"):
        assert "ship failed" not in ended(report)
        assert "charge succeeded" not in ended(report), "another write went past an unknown one"


@pytest.mark.parametrize("parts", [("seat", "room"), ("gift", "both", "post")], ids=" ".join)
def test_a_trip_that_failed_stays_failed_wherever_its_process_dies(parts: tuple[str, ...]):
    for report in struck_everywhere(of(Step("trip", "rome", parts=parts, fails=True)), "kill"):
        assert report.reach.records["TransactionAborted"] == 1
        assert not report.reach.records["TransactionCommitting"]


@pytest.mark.parametrize("kind", ["charge", "pay", "mail", "order"])
@pytest.mark.parametrize("fault", ["error_after", "garbage"])
def test_an_error_after_the_effect_is_no_refusal(fault: str, kind: str):
    assert ended(checked(of(Step(kind, "it"), faults=(Fault(fault, 1, kind),)))) <= {
        f"{kind} succeeded",
        f"{kind} unknown",
    }


def test_branches_that_finish_in_another_order_keep_their_names():
    steps = (Step("mail", "slow", group=1), Step("pay", "quick", group=1), Step("ticket", "after"))
    for report in struck_everywhere(of(*steps, faults=(Fault("late", 1, "mail", 5_000),)), "kill"):
        assert report.reach.records["RunCompleted"] == 1


def test_a_late_owner_changes_nothing_on_real_files():
    told = of(Step("mail", "letter"), Step("charge", "card"))
    for report in struck_everywhere(told, "pause", ms=120_000, journal="sqlite"):
        assert ended(report) == {"mail succeeded", "charge succeeded"}


def test_a_caller_that_leaves_does_not_take_its_call_with_it():
    told = of(Step("hurry", "letter"), Step("charge", "card"), faults=(Fault("late", 1, "mail", 15_000),))
    left = 0
    for report in struck_everywhere(told, "kill"):
        assert ended(report) == {"mail succeeded", "charge succeeded"}
        left += report.reach.records["CallerLeft"]
    assert left, "no caller left"


def test_a_secret_is_found_again_by_whoever_goes_on_and_is_written_nowhere():
    told = of(Step("sign", "deed"), faults=(Fault("reply_lost", 1, "sign"),))
    for report in struck_everywhere(told, "kill"):
        assert ended(report) == {"sign succeeded"}


def test_newer_code_with_shorter_promises_goes_on_carefully():
    told = of(Step("charge", "card"), Step("ticket", "bug"), faults=(Fault("late", 1, "ticket", 9_000),))
    for report in struck_everywhere(told, "deploy"):
        assert "ticket failed" not in ended(report)


def test_a_model_that_never_says_the_same_twice_is_asked_once_for_each_answer_on_record():
    told = of(Step("think", "refund"), Step("charge", "card"))
    for report in struck_everywhere(told, "kill"):
        assert report.reach.records["DecisionRecorded"] == 1


def test_what_a_plain_write_did_is_durable_before_anybody_hears_it():
    for report in struck_everywhere(of(Step("ship", "box")), "kill"):
        assert ended(report) <= {"ship succeeded", "ship unknown"}


def test_an_approval_that_is_asked_for_again_ends_wherever_the_disk_is_full_meanwhile():
    plan = of(
        Step("adjust", "great thing"),
        faults=(Fault("overtaken", 1, "adjust", 500), Fault("brief", 3, "people", 100)),
    )
    seen = [ended(report) for report in struck_everywhere(plan, "disk_full", 119_000)]
    assert all("adjust succeeded" in endings for endings in seen)


@pytest.mark.parametrize("kind", ["wire", "grant", "adjust"])
def test_what_is_approved_is_sent_once_wherever_its_process_dies(kind: str):
    for report in struck_everywhere(of(Step(kind, "great thing")), "kill"):
        assert report.reach.endings["approval: approved"]
        assert ended(report) & {f"{kind} succeeded", f"{kind} unknown"}


@pytest.mark.parametrize(("what", "ending"), [("no", "declined"), ("overslept", "expired")])
def test_what_nobody_says_yes_to_is_never_sent(what: str, ending: str):
    plan = of(Step("grant", "great thing"), faults=(Fault(what, 1, "people", 500),))
    for report in struck_everywhere(plan, "kill"):
        assert f"approval: {ending}" in report.reach.endings
        assert not ended(report) & {"grant succeeded", "grant unknown"}


@pytest.mark.parametrize("step", [Step("spend", "it", cents=900), Step("adjust", "it")])
def test_what_a_person_wrote_is_sent_wherever_its_process_dies(step: Step):
    plan = of(step, faults=(Fault("edit", 1, "people", 500),))
    for report in struck_everywhere(plan, "kill"):
        assert report.reach.records["ArgumentsEdited"] == 1
        assert f"{step.kind} succeeded" in ended(report)


def test_where_a_person_answers_as_the_tool_would_nothing_is_sent():
    for report in struck_everywhere(of(Step("grant", "it"), faults=(Fault("stand_in", 1, "people"),)), "kill"):
        assert report.reach.records["ResultGiven"] == 1
        assert not report.reach.records["AttemptStarted"]


def test_a_permission_is_used_once_wherever_its_process_dies():
    """A person whose process dies while the permission is given gives it again, and that is the same permission."""
    steps = (Step("pay", "first"), Step("spend", "one", 1, cents=900), Step("spend", "two", 1, cents=900))
    plan = of(*steps, faults=(Fault("busy", 1, "pay", 5_000),), permits=(Permit("spend", "bea", times=1),))
    used = [report.reach.endings["permission: used"] for report in struck_everywhere(plan, "kill")]
    assert set(used) == {1}


@pytest.mark.parametrize("stop", [False, True])
def test_a_message_is_heard_before_the_next_write_wherever_its_process_dies(*, stop: bool):
    steps = (Step("pay", "first"), Step("rest", "a while", ms=20_000), Step("ship", "box"), Step("mail", "letter"))
    plan = of(*steps, tellings=(Telling("run", 3_000, stop=stop),))
    for report in struck_everywhere(plan, "kill"):
        heard = [line for line in report.log if "run run receives message 1" in line]
        assert heard
        assert bool(ended(report) & {"ship succeeded", "ship unknown"}) is not stop


@pytest.mark.parametrize(("kind", "word"), [("order", "two"), ("note", "refuse"), ("pay", "sample")])
def test_a_write_is_judged_once_wherever_its_process_dies(kind: str, word: str):
    for report in struck_everywhere(replace(of(Step(kind, "it")), policy=True), "kill"):
        assert report.reach.records["Ruled"] == 1
        assert report.reach.endings[f"ruling: {word}"] == 1
        assert bool(report.reach.records["AttemptStarted"]) is (word != "refuse")


def test_what_is_judged_by_the_past_is_counted_once_wherever_its_process_dies():
    """The third purchase is the second one after a person approved the first: from then on it is one too many."""
    steps = tuple(Step("buy", "shop 0", cents=700) for _ in range(3))
    plan = replace(of(*steps, faults=(Fault("error_before", 1, "buy"),)), policy=True)
    for report in struck_everywhere(plan, "kill"):
        ruled = [name for name in report.reach.endings if name.startswith("past: ")]
        assert sorted(ruled) == ["past: a lot", "past: approved before", "past: purchases"]
        assert report.reach.records["Ruled"] == 3


def test_what_a_caller_left_while_it_was_judged_is_judged_once():
    """This run's letter is drawn for a look afterwards, so its ruling is a commit of its own, and that takes its time."""
    script = Script("run-1", (Step("hurry", "letter"), Step("ship", "box")))
    for report in struck_everywhere(Plan(11, (script,), WORKERS, policy=True, disk_ms=20), "slow", 30_000):
        assert report.reach.records["Ruled"] == 2


def test_newer_code_with_another_policy_asks_again_and_withdraws_no_question():
    for report in struck_everywhere(replace(of(Step("charge", "card"), Step("switch", "it")), policy=True), "deploy"):
        assert report.reach.endings["approval: approved"]
        assert ended(report) >= {"charge succeeded", "switch succeeded"}


@pytest.mark.parametrize("kind", ["", "retry"])
def test_a_persons_word_on_what_nobody_can_tell_counts_once_wherever_its_process_dies(kind: str):
    faults = (Fault("lost", 1, "ship"), *((Fault(kind, 1, "review"),) if kind else ()))
    for report in struck_everywhere(replace(of(Step("ship", "box"), faults=faults), reviews=True), "kill"):
        assert report.reach.records["RunCompleted"] == 1, "a person says what is so, and the run goes on"


def test_amends_that_a_person_orders_are_made_wherever_its_process_dies():
    faults = (Fault("reply_lost", 1, "guide"), Fault("compensation", 1, "review"))
    plan = of(Step("trip", "rome", parts=("gift", "guide")), Step("charge", "card"), faults=faults)
    for report in struck_everywhere(replace(plan, reviews=True), "kill"):
        assert not report.reach.records["TransactionCommitted"]
        assert "gift_back succeeded" in ended(report) or not report.reach.endings["transaction aborted"]


def test_what_has_left_before_amends_were_ordered_stands_and_code_is_told_so():
    faults = (Fault("reply_lost", 1, "send"), Fault("compensation", 1, "review"))
    plan = replace(of(Step("trip", "rome", parts=("gift", "send")), faults=faults), reviews=True)
    for report in struck_everywhere(plan, "kill"):
        sent = any("send does it" in line for line in report.log)
        assert any("standing ['trip-rome/send#1']" in line for line in report.log) is sent


def test_what_a_late_owner_knows_of_a_call_that_a_message_called_off_is_known_to_the_next_one():
    """It woke up, was told the message, and let go of the call whose end it had not been able to record."""
    plan = of(Step("ticket", "bug"), faults=(Fault("refused", 1, "ticket"),), tellings=(Telling("run", 60_000),))
    for report in struck_everywhere(plan, "pause", 120_000):
        assert report.reach.records["RunCompleted"] == 1


@pytest.mark.parametrize("kind", ["ask", "hand_over"])
def test_the_first_word_is_heard_wherever_its_process_dies(kind: str):
    plan = of(Step(kind, "q", ms=600_000, cents=2), Step("ship", "box"), faults=(Fault("disagree", 1, "question", 30),))
    for report in struck_everywhere(plan, "kill"):
        assert report.reach.records["QuestionAsked"] == report.reach.endings["question: answered"] == 1


def test_a_run_that_was_taken_over_sends_nothing_more_wherever_its_process_dies():
    steps = (Step("pay", "first"), Step("hand_over", "q", ms=600_000), Step("ship", "box"))
    for report in struck_everywhere(of(*steps, faults=(Fault("take_over", 1, "question"),)), "kill"):
        assert report.reach.endings["question: taken over"]
        assert not ended(report) & {"ship succeeded", "ship unknown"}


def test_what_is_handed_to_another_agent_is_done_once_wherever_its_process_dies():
    for report in struck_everywhere(of(Step("pass", "q"), Step("charge", "card")), "kill"):
        assert report.reach.records["HandedOff"] == 1
        assert any("dare failed" in line for line in report.log), "it had not that tool"
