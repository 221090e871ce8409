"""Counts, at the services, the fate of each effect that a customer asked for.

Pure: it compares what the witness saw with what a side finally reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from holdfast.demo.schedule import SERVICES, Spot

Reported = Literal["done", "failed", "waiting"]
"""A side's final statement about an effect; an effect without a statement is not in its report."""

Fate = Literal["once", "twice", "never", "waiting", "refused"]


class Counts(msgspec.Struct, frozen=True):
    """One side's row of the table: `requested = once + twice + never + waiting + refused`.

    twice: it happened more than once, whatever else is true. waiting: a person is asked. once: it
    happened once. refused: it did not happen, and the side reports that it failed. never: it did not
    happen, and the side does not say so. Apart from these, misreported: not waiting, and the side says done
    where nothing happened, or failed or nothing where something did.
    """

    requested: int
    once: int
    twice: int
    never: int
    waiting: int
    refused: int
    misreported: int


def count(requests: Iterable[int], effects: Counter[Spot], report: Mapping[Spot, Reported]) -> Counts:
    wanted: list[Spot] = [(service, request) for request in requests for service in SERVICES]
    fates = Counter(fate(effects[one], report.get(one)) for one in wanted)
    return Counts(
        requested=len(wanted),
        once=fates["once"],
        twice=fates["twice"],
        never=fates["never"],
        waiting=fates["waiting"],
        refused=fates["refused"],
        misreported=sum(misreported(effects[one], report.get(one)) for one in wanted),
    )


def refunded_twice(prices: Mapping[int, int], effects: Counter[Spot]) -> int:
    """The cents that customers received beyond their refund. `prices` has the refund due for each request."""
    return sum(cents * max(0, effects["payments", request] - 1) for request, cents in prices.items())


def fate(times: int, reported: Reported | None) -> Fate:
    """The column in which one effect is counted. The first line that fits decides."""
    if times > 1:
        return "twice"
    if reported == "waiting":
        return "waiting"
    if times == 1:
        return "once"
    return "refused" if reported == "failed" else "never"


def misreported(times: int, reported: Reported | None) -> bool:
    """True if the final report differs from the service. An effect that waits for a person claims nothing."""
    if reported == "waiting":
        return False
    return (reported == "done") != (times > 0)
