"""Planted bugs in what a policy says, and in what it knows."""

from __future__ import annotations

from typing import Final

from simulator.mutant import Mutant, always, replaced
from simulator.ruling_twists import (
    asked_in_vain,
    counted_at_each_attempt,
    drawn_anew,
    of_the_same_run,
    one_is_enough,
    overruled,
    refused_in_vain,
    the_last_rule,
)

POLICY: Final = (
    # What a policy says.
    Mutant(
        "nothing is judged",
        "writes leave that no policy has seen",
        "holdfast.engine.operation_driver:OperationDriver._policy",
        always(""),
    ),
    Mutant(
        "refused and sent",
        "what a policy refuses is sent",
        "holdfast.model.decision.send_rules:_BEFORE_FIRST",
        replaced("ruled", refused_in_vain),
    ),
    Mutant(
        "ruled and not asked",
        "what a policy asks about is sent",
        "holdfast.model.decision.send_rules:_BEFORE_FIRST",
        replaced("_gate", asked_in_vain),
    ),
    Mutant("one is enough", "one person says yes where two have to", "holdfast.model.policy:terms", one_is_enough),
    Mutant(
        "a policy overrules a gate",
        "what a tool asks about leaves by a policy",
        "holdfast.engine.operation_driver:OperationDriver._gated",
        overruled,
    ),
    Mutant("drawn anew", "a sample is another one when it is drawn again", "holdfast.model.policy:chance", drawn_anew),
    # What a policy knows of the past.
    Mutant("no past", "what was sent is not counted", "holdfast.engine.rulings:sent_posts", always(())),
    Mutant(
        "counted at each attempt",
        "what is sent again counts again",
        "holdfast.engine.rulings:sent_posts",
        counted_at_each_attempt,
    ),
    Mutant(
        "words not counted", "what people said is not counted", "holdfast.engine.rulings:decision_posts", always(())
    ),
    Mutant(
        "the past of one run",
        "what other runs did is not looked at",
        "holdfast.engine.rulings:_past",
        of_the_same_run,
    ),
    Mutant(
        "the last rule decides",
        "of several rules that hold the last one counts",
        "holdfast.model.policy:choose",
        the_last_rule,
    ),
)
"""By the promise that they break."""
