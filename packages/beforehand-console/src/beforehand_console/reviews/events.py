"""Reviews: people's answers about operations, one value per answer, as the figures about people count them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from beforehand.model.shadow import Traits
from beforehand_console.reviews.statistics import band_of

Kind = Literal["approval", "review", "shadow", "planted"]
ReviewAnswer = Literal[
    "approved", "declined", "asked_back", "edited", "answered", "expired", "right", "wrong", "settled"
]

OVERRIDES: Final = frozenset[ReviewAnswer]({"declined", "asked_back", "edited", "answered", "wrong"})
"""Answers after which something else happened, or should have happened, than the agent wanted."""
JUDGED: Final = OVERRIDES | frozenset[ReviewAnswer]({"approved", "right"})
"""Answers that say whether the agent was right. An expiry says nothing, nor does an answer about an outcome."""


class Review(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One person's answer about one operation (`item` is RUN/STEP). Times are wall clocks in milliseconds.

    `shown` is how many characters there were to read. `sampled`: asked because of the draw alone.
    """

    item: str
    kind: Kind
    said: ReviewAnswer
    by: str
    asked_ms: int
    answered_ms: int
    shown: int
    traits: Traits
    sampled: bool = False

    @property
    def overridden(self) -> bool:
        """True if the answer is against what the agent wanted."""
        return self.said in OVERRIDES

    @property
    def judges(self) -> bool:
        """True if it says anything about the agent: planted cases are not the agent's."""
        return self.said in JUDGED and self.kind in {"approval", "shadow"}


class UnreviewedCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An operation that a policy let be sent without a person. `undone`: by a person's command, with its whole run."""

    item: str
    at_ms: int
    traits: Traits
    undone: bool = False


def last_reviews(looks: Iterable[Review]) -> list[Review]:
    """One answer for each operation: of several people's, the last one decided."""
    last: dict[tuple[str, Kind], Review] = {}
    for one in sorted(looks, key=lambda look: look.answered_ms):
        last[one.item, one.kind] = one
    return list(last.values())


def known_wrong(looks: Iterable[Review], passed: Iterable[UnreviewedCall]) -> list[UnreviewedCall]:
    """Operations that were sent unseen and undone later: no sample has to represent them."""
    seen = {one.item for one in looks if one.kind == "shadow" and one.judges}
    return [one for one in passed if one.undone and one.item not in seen]


def weights(looks: Iterable[Review], passed: Iterable[UnreviewedCall]) -> dict[tuple[str, Kind], float]:
    """How many operations each judged one represents, so that all that were decided are counted.

    An operation that was always asked about represents itself. A drawn one, before or after it was sent, represents its
    stratum: all that could have been drawn, over those that were answered. Counting answers covers the unanswered
    ones, if they are unanswered by chance alone.
    """
    decided, left = [one for one in last_reviews(looks) if one.judges], list(passed)
    drawn = Counter(one.traits.stratum for one in decided if is_drawn(one))
    asked = Counter(one.traits.stratum for one in decided if one.sampled)
    unseen = Counter(one.traits.stratum for one in left)
    unseen.subtract(one.traits.stratum for one in known_wrong(decided, left))
    found: dict[tuple[str, Kind], float] = {}
    for one in decided:
        stratum = one.traits.stratum
        stands_for = (unseen[stratum] + asked[stratum]) / drawn[stratum] if is_drawn(one) else 1.0
        found[one.item, one.kind] = max(1.0, stands_for)
    return found


def is_drawn(look: Review) -> bool:
    """True if chance selected it for review."""
    return look.sampled or look.kind == "shadow"


def amount_band(amount: float | None) -> str:
    """The power of ten that an amount lies in, such as `100 to 1000`."""
    if amount is None:
        return "not stated"
    if amount < 1:
        return "below 1"
    low = 10 ** math.floor(math.log10(amount) + 1e-9)
    return f"{low} to {low * 10}"


def groups_of(look: Review) -> dict[str, str]:
    """The group of a review, for each way to group."""
    return {
        "tool": look.traits.tool,
        "confidence": band_of(look.traits.confidence),
        "amount": amount_band(look.traits.amount),
        "reviewer": look.by,
    }
