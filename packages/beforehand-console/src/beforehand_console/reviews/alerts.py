"""Figures about whether reviewers keep up and still read, and alarms as a pure function of them.

An alarm about a rate needs proof: the whole 95 % interval has to be beyond the limit. Twenty approvals in a row prove
nothing; two hundred do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from beforehand_console.reviews.events import Review
from beforehand_console.reviews.metrics import caught_of
from beforehand_console.reviews.statistics import Share, median, share

DAY_MS: Final = 86_400_000
QUICKEST: Final = 48.0
"""Too many characters a second to read: twice the mean of adults, 238 words a minute at six characters with the space.

Source of the mean: M. Brysbaert, "How many words do we read per minute? A review and meta-analysis of reading rate",
Journal of Memory and Language 109 (2019).
"""
AT_ONCE_MS: Final = 1_000
"""Answers of one person that are no further apart were given together; what was shown for them is one text."""


class AlertLimits(msgspec.Struct, frozen=True):
    """Limits beyond which a figure is an alarm. Rates are shares of reviews; `load` is a multiple of an equal share.

    A rate of fewer than `enough` reviews gives no alarm.
    """

    depth: int = 100
    age_hours: float = 24.0
    approved: float = 0.98
    quick: float = 0.1
    caught: float = 0.7
    expired: float = 0.05
    load: float = 1.5
    enough: int = 10


class OpenItem(msgspec.Struct, frozen=True):
    """One open item. `due_ms`: the wall clock of its deadline; `blocked`: how much waits behind it."""

    item: str
    asked_ms: int
    due_ms: int | None = None
    to: str = ""
    escalated: int = 0
    blocked: int = 0


class ReviewerLoad(msgspec.Struct, frozen=True):
    """One reviewer: how much of the work, how fast, how often yes, how often too fast, and what was caught."""

    by: str
    answered: int
    part: Share
    median_ms: float | None
    approved: Share
    quick: Share
    caught: Share
    waiting: int


class Health(msgspec.Struct, frozen=True):
    """How people keep up with open items, over the last `days`. Times are in milliseconds.

    `observed_ms` is the part of these days since the first of the questions.
    """

    at_ms: int
    days: float
    depth: int
    oldest_ms: int
    overdue: int
    asked: int
    answered: int
    expired: Share
    median_ms: float | None
    approved: Share
    quick: Share
    caught: Share
    reviewers: tuple[ReviewerLoad, ...]
    observed_ms: int = 0

    @property
    def work_ms(self) -> int | None:
        """The time to work off the queue at the pace so far, if nothing new came. None: there are no answers."""
        return self.depth * self.observed_ms // self.answered if self.answered else None


class Alarm(msgspec.Struct, frozen=True):
    """A figure beyond its limit. `reviewer` is empty if it is about all of them."""

    name: str
    says: str
    reviewer: str = ""


def health(waiting: Sequence[OpenItem], looks: Sequence[Review], now_ms: int, days: float) -> Health:
    """The figures at a moment, from the open items and the reviews of the last `days`."""
    since = now_ms - int(days * DAY_MS)
    recent = [one for one in looks if one.answered_ms >= since]
    spoken = [one for one in recent if one.by]
    hasty = quick_ones(spoken)
    asked = [one.asked_ms for one in recent] + [one.asked_ms for one in waiting]
    return Health(
        at_ms=now_ms,
        days=days,
        depth=len(waiting),
        oldest_ms=max((now_ms - one.asked_ms for one in waiting), default=0),
        overdue=sum(one.due_ms is not None and one.due_ms < now_ms for one in waiting),
        asked=sum(at >= since for at in asked),
        answered=len(spoken),
        expired=share(len(recent) - len(spoken), len(recent)),
        median_ms=median([one.answered_ms - one.asked_ms for one in spoken]),
        approved=_approved(spoken),
        quick=share(len(hasty), len(spoken)),
        caught=caught_of(spoken),
        reviewers=_loads(spoken, hasty, waiting),
        observed_ms=now_ms - max(since, min(asked, default=now_ms)),
    )


def _loads(spoken: Sequence[Review], hasty: set[str], waiting: Sequence[OpenItem]) -> tuple[ReviewerLoad, ...]:
    by_name: dict[str, list[Review]] = {}
    for one in spoken:
        by_name.setdefault(one.by, []).append(one)
    return tuple(
        ReviewerLoad(
            by=name,
            answered=len(own),
            part=share(len(own), len(spoken)),
            median_ms=median([one.answered_ms - one.asked_ms for one in own]),
            approved=_approved(own),
            quick=share(sum(_name(one) in hasty for one in own), len(own)),
            caught=caught_of(own),
            waiting=sum(one.to == name for one in waiting),
        )
        for name, own in sorted(by_name.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    )


def _approved(looks: Iterable[Review]) -> Share:
    """How often the answer was yes, of those that could have been no; planted cases ought to be, and are left out."""
    judged = [one for one in looks if one.judges]
    return share(sum(not one.overridden for one in judged), len(judged))


def quick_ones(looks: Iterable[Review]) -> set[str]:
    """The reviews (item and reviewer) that took less time than reading what was shown.

    A person began to read at an unknown time: not before it was asked, and not before their last answer. So the time
    taken is at most that long, and each review called quick here was. Answers given together count as one text.
    """
    by_name: dict[str, list[Review]] = {}
    for one in sorted(looks, key=lambda look: look.answered_ms):
        by_name.setdefault(one.by, []).append(one)
    return {_name(one) for own in by_name.values() for together in _at_once(own) for one in together}


def _at_once(own: Sequence[Review]) -> Iterable[list[Review]]:
    """The groups of answers, given together, that were quicker than reading."""
    group: list[Review] = []
    before = 0
    for one in own:
        if group and one.answered_ms - group[-1].answered_ms > AT_ONCE_MS:
            yield from _quick(group, before)
            before, group = group[-1].answered_ms, []
        group.append(one)
    yield from _quick(group, before)


def _quick(group: list[Review], before: int) -> Iterable[list[Review]]:
    if not group:
        return
    began = max(before, min(one.asked_ms for one in group))
    seconds = (group[-1].answered_ms - began) / 1000
    if sum(one.shown for one in group) > QUICKEST * seconds:
        yield group


def _name(look: Review) -> str:
    return f"{look.item} {look.kind} {look.by}"


# --- alarms -------------------------------------------------------------------------------------------


def alarms(now: Health, limits: AlertLimits) -> tuple[Alarm, ...]:
    """The alarms, the queue first. Pure: the same figures give the same alarms."""
    found = [*_queue(now, limits), *_rates("", now, limits)]
    if len(now.reviewers) > 1:  # what is said about one alone is said about all
        for one in now.reviewers:
            found.extend(_rates(one.by, one, limits))
    return (*found, *_load(now, limits))


def _queue(now: Health, limits: AlertLimits) -> Iterable[Alarm]:
    hours = now.oldest_ms / 3_600_000
    if now.depth > limits.depth:
        left = now.work_ms
        pace = "no answers" if left is None else f"{left / DAY_MS:.1f} days of work at the present pace"
        yield Alarm("queue", f"{now.depth:,} things wait, more than {limits.depth:,}: {pace}")
    if hours > limits.age_hours:
        yield Alarm("age", f"the oldest has waited for {hours:.0f} hours, more than {limits.age_hours:g}")
    if now.overdue:
        yield Alarm("overdue", f"{now.overdue:,} should have been answered by now")
    ended = int(now.expired.of)
    if share(now.asked, now.asked + ended).low > 0.5:
        yield Alarm("behind", f"{now.asked:,} questions came in {now.days:g} days, {ended:,} were answered or ran out")
    if now.expired.low > limits.expired:
        yield Alarm("expired", f"of what was asked, {now.expired} ended without an answer")


def _rates(by: str, now: Health | ReviewerLoad, limits: AlertLimits) -> Iterable[Alarm]:
    who = by or "people"
    if _proven(now.approved, limits) and now.approved.low > limits.approved:
        yield Alarm("approved", f"{who} said yes to {now.approved}: do they still read what they approve?", by)
    if _proven(now.quick, limits) and now.quick.low > limits.quick:
        yield Alarm("quick", f"{who} answered {now.quick} faster than a person reads", by)
    if _proven(now.caught, limits) and now.caught.high < limits.caught:
        yield Alarm("missed", f"{who} caught {now.caught} of what was planted", by)


def _proven(share: Share, limits: AlertLimits) -> bool:
    return share.of >= limits.enough


def _load(now: Health, limits: AlertLimits) -> Iterable[Alarm]:
    fair = limits.load / max(1, len(now.reviewers))
    for one in now.reviewers:
        if len(now.reviewers) > 1 and one.part.low > fair:
            yield Alarm("load", f"{one.by} answers {one.part} of everything", one.by)


# --- whose turn it is -----------------------------------------------------------------------------------


def by_urgency(waiting: Iterable[OpenItem]) -> list[OpenItem]:
    """The order of review: what was made urgent, the nearest deadline, what blocks most, the oldest."""
    never = 1 << 62
    return sorted(waiting, key=lambda one: (-one.escalated, one.due_ms or never, -one.blocked, one.asked_ms, one.item))


def suggested(waiting: Iterable[OpenItem], now: Health, limits: AlertLimits) -> dict[str, str]:
    """Suggest a reviewer for each item without one: the reviewer with least to do, and without an alarm.

    If all of them have alarms, each gets a part. Empty if there are no recent answers.
    """
    tired = {one.reviewer for one in alarms(now, limits)}
    fresh = [one for one in now.reviewers if one.by not in tired] or list(now.reviewers)
    work = {one.by: one.waiting + one.answered / max(now.days, 1e-9) for one in fresh}
    found: dict[str, str] = {}
    for one in by_urgency(waiting):
        if one.to or not work:
            continue
        free = min(work, key=lambda name: (work[name], name))
        found[one.item] = free
        work[free] += 1
    return found
