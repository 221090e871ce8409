"""Tallies: how often each value of a topic was observed, by agent and hour, with the newest few subjects.

Adding is associative and commutative, so tallies do not depend on the portions in which records were read. What is
older than the hours that rules look at one by one is kept by the day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from beforehand.inspect.monitors.observations import Observation

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_HOURS: Final = 24
_KEPT: Final = 5


class Sighting(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An observation's moment, and the run or the operation that it is about."""

    at_ms: int
    subject: str


class Tally(msgspec.Struct, array_like=True, omit_defaults=True):
    """How often a value was observed, where it was last, and when first. The newest sightings come first."""

    number: int = 0
    newest: list[Sighting] = []
    first_ms: int = 0

    def add(self, other: Tally) -> None:
        """Count these observations, too."""
        self.number += other.number
        self.first_ms = min(self.first_ms or other.first_ms, other.first_ms or self.first_ms)
        self.newest = sorted({*self.newest, *other.newest}, reverse=True)[:_KEPT] if self.newest else other.newest[:]


Topics: TypeAlias = dict[str, dict[str, Tally]]
"""The tallies of one agent, by topic and value."""


class AgentTallies(msgspec.Struct):
    """The tallies of one agent, by hour: the number of hours since 1970. A day that is kept whole is its first hour."""

    hours: dict[int, Topics] = {}

    def add(self, one: Observation) -> None:
        """Count an observation."""
        hour = self.hours.setdefault(one.at_ms // HOUR_MS, {})
        tally = hour.setdefault(one.topic, {}).setdefault(one.value, Tally())
        tally.add(Tally(1, [Sighting(one.at_ms, one.subject)], one.at_ms))

    def add_all(self, other: AgentTallies) -> None:
        """Add other tallies."""
        for hour, topics in other.hours.items():
            self.hours[hour] = total((self.hours.get(hour, {}), topics))

    def between(self, first: int, last: int) -> Topics:
        """The sum over these hours, both included."""
        return total(topics for hour, topics in self.hours.items() if first <= hour <= last)

    def shortened(self, first: int, fine: int) -> AgentTallies:
        """Without what is before the hour `first`, and by the day where the whole day is before the hour `fine`.

        Of each value, only the newest few sightings are kept: rules show no others of the present.
        """
        parts: dict[int, list[Topics]] = {}
        for hour, topics in self.hours.items():
            day = hour // _HOURS * _HOURS
            if hour >= first:
                parts.setdefault(day if day + _HOURS <= fine else hour, []).append(topics)
        kept, shown = {hour: total(parts[hour]) for hour in sorted(parts, reverse=True)}, Counter[tuple[str, str]]()
        for hour, topic, value, tally in _each(kept):
            tally.newest = tally.newest[: _KEPT - shown[topic, value]] if hour >= fine else []
            tally.first_ms = tally.first_ms if hour >= fine else 0
            shown[topic, value] += len(tally.newest)
        return AgentTallies(kept)


def _each(hours: Mapping[int, Topics]) -> Iterator[tuple[int, str, str, Tally]]:
    for hour, topics in hours.items():
        for topic, values in topics.items():
            for value, tally in values.items():
                yield hour, topic, value, tally


def sighted(topics: Topics) -> Topics:
    """The values with a sighting. One can lack its sightings if a clock was wrong when tallies were trimmed."""
    return {
        topic: {value: tally for value, tally in values.items() if tally.newest} for topic, values in topics.items()
    }


def total(parts: Iterable[Topics]) -> Topics:
    """The sum of tallies."""
    found: Topics = {}
    for topics in parts:
        for topic, values in topics.items():
            mine = found.setdefault(topic, {})
            for value, tally in values.items():
                mine.setdefault(value, Tally()).add(tally)
    return found


def number_of(topics: Mapping[str, Mapping[str, Tally]], topic: str, value: str = "") -> int:
    """How often a value was observed; without one, the number of all observations of the topic."""
    values = topics.get(topic, {})
    return values[value].number if value in values else 0 if value else sum(one.number for one in values.values())
