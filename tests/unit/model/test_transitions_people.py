"""What people were asked, what they said, and what became of amends that were begun meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.outcome import ASKED_BACK, DECLINED, Basis
from beforehand.model.policy import PolicyFacts, Ruling
from beforehand.policies import Require
from tests.unit.model.stories import HOUR, MINUTE, REACHED, STEP, VERIFIABLE, Story

AMENDS = "desk/refund#1"
ASK = Ruling("ask", "big")
FACTS = PolicyFacts("charge", "desk", hour=9, weekday="mon", amount=700.0)

# --- a question and its answers ------------------------------------------------------------------------------


def test_a_question_says_what_is_asked_of_how_many_since_when_and_until_when():
    story = Story().planned()
    until = story.wall + HOUR
    state = story.asked("a1", people=2, until=until).state
    assert (
        state.approval.asked_digest,
        state.approval.people_needed,
        state.approval.asked_at,
        state.approval.answer_by,
    ) == (
        "a1",
        2,
        story.wall,
        until,
    )
    assert (state.phase, state.approval.person_asked, state.waits_for) == ("gated", True, "a person")


def test_a_new_question_forgets_the_approvals_of_the_one_before():
    story = Story().planned().asked(people=2).approved("ann", until=9).approved("bob")
    assert (story.state.approval.approved_digest, story.state.approval.approvers) == ("a1", ("ann", "bob"))
    state = story.asked("a2").state
    assert (state.approval.approved_digest, state.approval.approvers, state.approval.approved_until) == ("", (), 0)


def test_a_doubt_leaves_the_approval_as_it_is():
    """What is parked for another reason asks for no approval, and voids none."""
    assert Story().planned().asked().approved().parked("tool gone").state.approval.approved_digest == "a1"


def test_an_approval_stands_once_enough_people_gave_it():
    story = Story().planned().asked(people=2).approved("ann")
    assert (story.phase, story.state.approval.approved_digest, story.state.approval.approvers) == (
        "gated",
        "",
        ("ann",),
    )
    assert (story.state.reason, story.state.waits_for) == ("a gate", "a person")
    story.approved("bob")
    assert (story.phase, story.state.approval.approved_digest, story.state.approval.approvers) == (
        "ready",
        "a1",
        ("ann", "bob"),
    )
    assert (story.state.reason, story.state.waits_for, story.state.approval.person_asked) == ("", "", False)


@pytest.mark.parametrize(
    ("first", "second", "until"),
    [(50, 70, 50), (70, 50, 50), (0, 70, 70), (70, 0, 70), (0, 0, 0)],
    ids=["the first ends", "the second ends", "only the second", "only the first", "for ever"],
)
def test_an_approval_ends_with_the_first_of_its_words(first, second, until):
    story = Story().planned().asked(people=2).approved("ann", until=first).approved("bob", until=second)
    assert story.state.approval.approved_until == until


def test_a_no_is_final_and_says_who_said_it():
    story = Story().planned().asked().waits(HOUR, "verify").later(MINUTE).refused("too dear")
    state = story.state
    assert (state.phase, state.rule, state.reason, state.settlement.code) == (
        "failed",
        "a person said no",
        "too dear",
        DECLINED,
    )
    assert (state.settlement.basis, state.settlement.at) == (Basis("person", "ann", "too dear"), story.wall)
    assert (state.wait, state.waits_for) == (None, "")


def test_a_no_without_a_reason_names_the_person():
    assert Story().planned().asked().refused().state.reason == "ann said no"


def judged(story: Story) -> Story:
    return story.took(r.Ruled(step=STEP, policy="desk@1", ruling=ASK, facts=FACTS))


def test_a_ruling_is_kept_with_its_policy_and_the_facts_it_judged_and_changes_no_question():
    state = judged(Story().planned().asked()).state
    assert (state.judgement.ruling, state.judgement.policy, state.judgement.facts) == (ASK, "desk@1", FACTS)
    assert (state.phase, state.approval.asked_digest, state.approval.person_asked) == ("gated", "a1", True)


# --- amends that were begun before anybody knew of the effect ------------------------------------------------


def unknown_and_amended() -> Story:
    return Story(VERIFIABLE).sent("ambiguous").settled("unknown").amended(AMENDS)


def test_amends_of_an_effect_that_is_known_are_not_overtaken():
    story = Story().sent("returned").settled("succeeded").amended(AMENDS)
    assert (story.state.links.compensated_by, story.state.links.overtaken) == (AMENDS, "")


def test_amends_are_overtaken_when_the_effect_is_found_after_they_were_begun():
    assert unknown_and_amended().state.links.overtaken == ""
    assert unknown_and_amended().settled("succeeded").state.links.overtaken == AMENDS
    assert unknown_and_amended().person("happened").state.links.overtaken == AMENDS


def test_amends_are_overtaken_although_a_person_ordered_one_more_attempt_in_between():
    found = unknown_and_amended().person("retry").verified("happened").settled("succeeded")
    assert found.state.links.overtaken == AMENDS
    again = unknown_and_amended().person("retry").sent("returned").settled("succeeded")
    assert again.state.links.overtaken == AMENDS


def test_amends_are_not_overtaken_by_the_proof_that_nothing_happened():
    assert unknown_and_amended().settled("failed").state.links.overtaken == ""
    assert unknown_and_amended().person("did_not_happen").state.links.overtaken == ""


def test_amends_that_the_news_of_a_part_has_overtaken_stay_so():
    for outcome in (lambda story: story.settled("failed"), lambda story: story.person("did_not_happen")):
        story = unknown_and_amended()
        story.operation = replace(story.state, links=replace(story.state.links, overtaken=AMENDS))
        assert outcome(story).state.links.overtaken == AMENDS


def test_amends_count_for_nothing_once_the_outcome_is_contradicted():
    story = Story().sent("returned").settled("succeeded").amended(AMENDS).contradicted()
    assert story.state.links.overtaken == AMENDS


# --- whether there is an effect ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [phase for phase in REACHED if phase not in {"new", "succeeded"}])
def test_only_what_succeeded_has_landed(phase):
    assert not REACHED[phase]().state.landed
    assert REACHED["succeeded"]().state.landed


@pytest.mark.parametrize("phase", ["failed", "cancelled", "succeeded"])
def test_what_is_contradicted_after_its_outcome_counts_as_landed(phase):
    assert REACHED[phase]().contradicted().state.landed


def test_who_asks_back_ends_it_under_a_code_of_its_own():
    refused = r.ApprovalRefused(step=STEP, approval="a1", by="ann", reason="why so much?", code=ASKED_BACK)
    state = Story().planned().asked().took(refused).state
    assert (state.phase, state.reason, state.settlement.code) == ("failed", "why so much?", ASKED_BACK)


# --- other arguments, and an answer in the place of the tool --------------------------------------------------


def test_an_edit_changes_what_is_sent_and_keeps_what_code_called():
    story = Story().planned().asked(people=2).approved("bob", until=50).waits(HOUR, "approval")
    called = story.state.intent
    assert (story.state.edits, story.state.as_called) == (False, called)
    state = story.edited(b'{"cents":7}').state
    assert (state.phase, bytes(state.intent.arguments), state.as_called) == ("ready", b'{"cents":7}', called)
    assert (state.edits, state.editing.editors) == (True, ("ann",))
    assert (
        state.approval.asked_digest,
        state.approval.approvers,
        state.approval.approved_digest,
        state.approval.approved_until,
    ) == (
        "",
        (),
        "",
        0,
    )
    assert (state.approval.person_asked, state.reason, state.wait, state.waits_for) == (False, "", None, "")


def test_other_arguments_are_judged_anew_and_the_approval_of_the_first_ones_is_none_of_theirs():
    story = judged(Story().planned()).asked().approved().parked("tool gone")
    assert (story.state.judgement.policy, story.state.approval.approved_digest) == ("desk@1", "a1")
    state = story.edited(b'{"cents":7}').state
    assert (state.judgement.policy, state.approval.approved_digest) == ("", "")
    assert state.judgement.ruling == ASK, "what was said stands where no policy is there any more to judge them"


def test_a_second_edit_keeps_the_first_call_and_every_editor():
    story = Story().planned().asked()
    called = story.state.intent
    story.edited(b'{"cents":7}').asked("a2")
    assert (story.state.approval.approvers, story.state.editing.editors) == ((), ("ann",))
    state = story.edited(b'{"cents":8}', by="bob").state
    assert (state.as_called, state.editing.editors) == (called, ("ann", "bob"))


def test_a_persons_answer_in_the_place_of_the_tool_is_a_success_without_an_effect():
    given = r.ResultGiven(step=STEP, approval="a1", by="ann", result=r.Raw(b'"paid"'), note="cash", at=5)
    state = Story().planned().asked().waits(HOUR, "approval").took(given).state
    assert (state.phase, state.settlement.basis, bytes(state.settlement.result)) == (
        "succeeded",
        Basis("person", "ann", "cash"),
        b'"paid"',
    )
    assert (state.settlement.stood_in, state.landed, state.settlement.at) == (True, False, 5)
    assert (state.rule, state.reason) == ("a person answered as the tool would have", "")
    assert (state.wait, state.waits_for) == (None, "")


# --- a question that is asked again, and how those who approve have to be known -------------------------------


def test_a_question_is_marked_as_changed_once_people_are_asked_about_something_else():
    story = Story().planned().asked("a1")
    assert not story.state.approval.question_changed
    assert not story.asked("a1").state.approval.question_changed
    assert story.asked("a2").state.approval.question_changed
    assert story.asked("a2").state.approval.question_changed, "it stays another question than the first"


def test_a_question_about_edited_arguments_is_another_one():
    story = Story().planned().asked("a1").edited(b'{"cents":4}')
    assert story.asked("a1").state.approval.question_changed


def test_a_permission_that_was_used_is_kept_when_people_are_asked():
    story = Story()
    started = r.AttemptStarted(
        step=STEP, number=1, token=1, send_by=9, intent=story.intent, standing="s-1", **story.stamp()
    )
    assert story.took(started).ends("not_sent").asked("a1").state.approval.permission == "s-1"


SIGNED = "it takes a person who signed in, and no token and no name that was typed"


@pytest.mark.parametrize(
    ("require", "via", "lacks"),
    [
        (None, "typed", ""),
        (Require(person=True), "password", ""),
        (Require(person=True), "oidc", ""),
        (Require(person=True), "token", SIGNED),
        (Require(person=True), "typed", SIGNED),
        (Require(), "typed", ""),
    ],
)
def test_an_approval_may_require_a_person_who_signed_in(require: Require | None, via: str, lacks: str):
    approval = Story().planned().asked(require=require).state.approval
    assert approval.require == require
    assert approval.lacks_proof(via, 0, HOUR) == lacks


@pytest.mark.parametrize(
    ("proven_ms", "now_ms", "enough"),
    [
        (HOUR, HOUR, True),
        (HOUR, HOUR + 10 * MINUTE, True),
        (HOUR, HOUR + 10 * MINUTE + 1, False),
        (1, 1, True),
        (0, 1, False),
    ],
)
def test_an_approval_may_require_a_password_given_a_short_time_ago(proven_ms: int, now_ms: int, enough: bool):
    require = Require(fresh_sign_in=timedelta(minutes=10))
    approval = Story().planned().asked(require=require).state.approval
    lacks = "" if enough else "it takes a person who signed in with a password in the last 600 s"
    assert approval.lacks_proof("password", proven_ms, now_ms) == lacks
