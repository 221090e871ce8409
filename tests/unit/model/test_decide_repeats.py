"""A model asks again for what has no outcome yet, and code is a part of what has none."""

from __future__ import annotations

from beforehand.model.decision import moves as m
from beforehand.model.decision.situation import OtherEffect
from beforehand.model.outcome import PENDING, Basis, PendingEffect
from tests.unit.model.stories import Story

ORDER = "desk/order#1"


def test_a_repeat_of_what_is_answered_later_is_not_sent_and_not_waited_for():
    met = OtherEffect("guard", "pending", ORDER, deferred=True)
    assert Story().planned().decide(other=met) == m.Settle(
        "repeats what is pending", "cancelled", Basis("rule"), f"{ORDER} was accepted, and is not finished"
    )


def test_code_that_meets_its_own_business_key_waits_for_the_answer():
    met = OtherEffect("claim", "pending", ORDER, deferred=True)
    assert Story().planned().says(other=met) == f"wait for claim: claim held by {ORDER}"


def test_a_repeat_of_what_runs_now_is_waited_for():
    met = OtherEffect("guard", "pending", ORDER)
    assert Story().planned().says(other=met) == f"wait for claim: guard held by {ORDER}"


def test_other_arguments_under_one_business_key_are_told_by_their_rule():
    met = OtherEffect("claim", "succeeded", ORDER, mismatch=True)
    assert Story(claim="A-17").planned().says(other=met) == ("failed(mismatch): other arguments under one business key")


def test_a_call_is_not_sent_while_something_is_pending_about_the_same_thing():
    met = PendingEffect(ORDER, ("an answer",))
    pending = OtherEffect("pending", "pending", ORDER, pending_effect=met)
    assert Story().planned().decide(other=pending) == m.Settle(
        "the same thing is pending", "cancelled", Basis("rule"), str(met), PENDING, pending_effect=met
    )


def test_a_part_of_an_effect_is_never_sent_by_itself():
    assert Story(completes=ORDER, item="row 2").planned().decide() == m.Settle(
        "sending ended, nothing landed", "failed", Basis("rule"), "a part of an effect is never sent by itself"
    )
