"""The situations of the decision table, told once: the tests judge them, the documentation shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from beforehand.model.contract import Contract, Key, Natural
from tests.unit.model.stories import HOUR, KEYED, MINUTE, NATURAL, PLAIN, READ, SETTLE, VERIFIABLE, Story, changed

NATURAL_READ_BACK: Final = changed(VERIFIABLE, idempotency=Natural(within=timedelta(minutes=5)))
KEYED_READ_BACK: Final = changed(VERIFIABLE, idempotency=Key(ttl=timedelta(hours=24)))

WITHOUT_VERIFIER: Final = {"read": READ, "natural": NATURAL, "keyed": KEYED, "none of these": PLAIN}
WITH_VERIFIER: Final = {"natural": NATURAL_READ_BACK, "keyed": KEYED_READ_BACK, "verifiable": VERIFIABLE}


class Row(NamedTuple):
    """One thing that may be known: its name, the story that leads there, and what else was read."""

    name: str
    tell: Callable[[Story], Story]
    situation: dict[str, Any] = {}
    clauses: dict[str, Any] = {}

    def story(self, contract: Contract) -> Story:
        return self.tell(Story(changed(contract, **self.clauses)))

    def says(self, contract: Contract) -> str:
        return self.story(contract).says(**self.situation)


def _unsent(story: Story) -> Story:
    return story.sent("not_sent")


def _ambiguous(story: Story) -> Story:
    return story.sent("ambiguous")


def _spent(story: Story) -> Story:
    for _ in range(story.contract.retries.attempts):
        story.sent("ambiguous")
    return story


def _refused_later(story: Story) -> Story:
    return story.sent("ambiguous").sent("rejected", code="402")


def _hopeless(story: Story) -> Story:
    story.sent("ambiguous").later(SETTLE).verified("cannot_tell").pauses(story.contract.verify_deadline_ms, "verify")
    return story


def _absent(story: Story) -> Story:
    return story.sent("ambiguous").later(SETTLE).verified("did_not_happen")


ANYWHERE: Final = (
    Row("nothing was sent yet", lambda story: story.planned()),
    Row("every attempt is proven unsent", _unsent),
    Row("every attempt is proven unsent, and the pause is over", lambda story: _unsent(story).waits(0, "retry")),
    Row("an attempt returned", lambda story: story.sent("returned")),
    Row("an earlier attempt returned after all (late report)", lambda s: _ambiguous(s).starts().late("returned")),
    Row("an attempt returned after one that may have landed", lambda story: _ambiguous(story).sent("returned")),
    Row(
        "an attempt returned, and the window of the earlier one is over",
        lambda story: _ambiguous(story).later(MINUTE).sent("returned"),
    ),
    Row("refused, and nothing else was sent", lambda story: story.sent("rejected", code="402")),
    Row("refused after an attempt that may have landed", _refused_later),
    Row("an attempt may have landed", _ambiguous),
    Row("an attempt may have landed, and the pause is over", lambda story: _ambiguous(story).waits(0, "retry")),
    Row("the process died during an attempt", lambda story: story.sent("lost").waits(0, "retry")),
    Row("the key's first request is still in progress", lambda s: s.sent("key_in_progress").waits(0, "retry")),
    Row("an attempt may have landed; its time for repeating is over", lambda s: _ambiguous(s).pauses(25 * HOUR)),
    Row("nothing was sent, and the run is cancelled", lambda story: story.planned(), {"blocked": "cancel"}),
    Row("every attempt is proven unsent, and the run is cancelled", _unsent, {"blocked": "cancel"}),
    Row("every attempt is proven unsent, and the deadline passed", _unsent, {"blocked": "deadline"}),
    Row("an attempt may have landed, and the run is cancelled", _ambiguous, {"blocked": "cancel"}),
    Row("an attempt may have landed, and no attempt is left", _spent),
    Row("nothing was sent, and the breaker is open", lambda story: story.planned(), {"breaker_ms": 5_000}),
    Row(
        "an attempt may have landed, and the breaker is open",
        lambda story: _ambiguous(story).waits(0, "retry"),
        {"breaker_ms": 5_000},
    ),
    Row(
        "an attempt was given up, and its call still runs",
        lambda story: story.sent("ambiguous", over=False).waits(0, "retry"),
        {"live": frozenset({1})},
    ),
    Row("a person was asked", lambda story: _ambiguous(story).settled("unknown")),
    Row("a person ordered one more attempt", lambda story: _ambiguous(story).settled("unknown").person("retry")),
    Row(
        "that attempt may have landed as well",
        lambda story: _ambiguous(story).settled("unknown").person("retry").sent("ambiguous"),
    ),
)

READ_BACK: Final = (
    Row("read back at once: nothing there yet", lambda story: _ambiguous(story).verified("did_not_happen")),
    Row("read back: it happened", lambda story: _ambiguous(story).verified("happened")),
    Row("read back after the window: it did not happen", lambda story: _absent(story).waits(0, "retry")),
    Row("read back: something else is there", lambda story: _ambiguous(story).verified("conflict")),
    Row("read back until the deadline: cannot tell", _hopeless),
    Row("read back after the window: absent, and the run is cancelled", _absent, {"blocked": "cancel"}),
    Row(
        "read back: cannot tell, and the window is unknown",
        lambda story: _ambiguous(story).verified("cannot_tell").pauses(story.contract.verify_deadline_ms, "verify"),
        {},
        {"settle_ms": None},
    ),
    Row(
        "returned, evidence expected: not read back yet",
        lambda story: story.sent("returned"),
        {},
        {"expects": True},
    ),
    Row(
        "returned, evidence expected: found",
        lambda story: story.sent("returned").verified("happened"),
        {},
        {"expects": True},
    ),
    Row(
        "returned, evidence expected: absent after the window",
        lambda story: story.sent("returned").later(SETTLE).verified("did_not_happen"),
        {},
        {"expects": True},
    ),
    Row(
        "returned, evidence expected: cannot tell until the deadline",
        lambda s: s.sent("returned").later(SETTLE).verified("cannot_tell").later(s.contract.verify_deadline_ms),
        {},
        {"expects": True},
    ),
    Row(
        "returned, evidence expected: absent until the deadline, and the window is unknown",
        lambda s: s.sent("returned").verified("did_not_happen").later(s.contract.verify_deadline_ms),
        {},
        {"expects": True, "settle_ms": None},
    ),
    Row(
        "returned, evidence expected: something else is there",
        lambda story: story.sent("returned").verified("conflict"),
        {},
        {"expects": True},
    ),
)

PRECONDITIONS: Final = (
    Row("nothing was sent: preconditions not read", lambda story: story.planned(), {}, {"observes": True}),
    Row("nothing was sent: preconditions as before", lambda s: s.planned(), {"reading": "same"}, {"observes": True}),
    Row("nothing was sent: preconditions changed", lambda s: s.planned(), {"reading": "changed"}, {"observes": True}),
    Row(
        "an attempt may have landed: preconditions as before",
        lambda story: _ambiguous(story).waits(0, "retry"),
        {"reading": "same"},
        {"observes": True},
    ),
    Row(
        "an attempt may have landed: preconditions changed",
        lambda story: _ambiguous(story).waits(0, "retry"),
        {"reading": "changed"},
        {"observes": True},
    ),
    Row(
        "an attempt may have landed: preconditions cannot be read",
        lambda story: _ambiguous(story).waits(0, "retry"),
        {"reading": "unreadable"},
        {"observes": True},
    ),
)

ABSENT_AND_CHANGED: Final = Row(
    "read back after the window: absent; preconditions changed",
    lambda story: _absent(story).waits(0, "retry"),
    {"reading": "changed"},
    {"observes": True},
)
