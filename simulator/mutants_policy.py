"""Planted bugs in what a policy says, and in what it knows: see `mutants.py`."""

from __future__ import annotations

from typing import Final

from simulator import ruling_twists, twists
from simulator.mutant import Mutant

POLICY: Final = (
    # What a policy says.
    Mutant(
        "nothing is judged", "writes leave that no policy has seen", "engine.flight:Flight._policy", twists.always("")
    ),
    Mutant(
        "refused and sent",
        "what a policy refuses is sent",
        "model.sending:_BEFORE_FIRST",
        twists.replaced("ruled", ruling_twists.refused_in_vain),
    ),
    Mutant(
        "ruled and not asked",
        "what a policy asks about is sent",
        "model.sending:_BEFORE_FIRST",
        twists.replaced("_gate", ruling_twists.asked_in_vain),
    ),
    Mutant("one is enough", "one person says yes where two have to", "model.ruling:terms", ruling_twists.one_is_enough),
    Mutant(
        "a policy overrules a gate",
        "what a tool asks about leaves by a policy",
        "engine.flight:Flight._gated",
        ruling_twists.overruled,
    ),
    Mutant(
        "drawn anew", "a sample is another one when it is drawn again", "model.ruling:chance", ruling_twists.drawn_anew
    ),
    # What a policy knows of the past.
    Mutant("no past", "what was sent is not counted", "engine.judging:sent_posts", twists.always(())),
    Mutant(
        "counted at each attempt",
        "what is sent again counts again",
        "engine.judging:sent_posts",
        ruling_twists.counted_at_each_attempt,
    ),
    Mutant("words not counted", "what people said is not counted", "engine.judging:word_posts", twists.always(())),
    Mutant(
        "the past of one run",
        "what other runs did is not looked at",
        "engine.judging:_past",
        ruling_twists.of_the_same_run,
    ),
    Mutant(
        "the last rule decides",
        "of several rules that hold the last one counts",
        "model.ruling:choose",
        ruling_twists.the_last_rule,
    ),
)
"""By the promise that they break."""
