"""What tests draw from: a seed, the date (which chooses the planted bugs of the day), and the tier that runs them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from beforehand.agent.agent import Agent
    from beforehand.testing.world import World

SEED = int(os.environ.get("BEFOREHAND_SEED", "1"))
DATE = os.environ.get("DATE") or datetime.now(UTC).date().isoformat()
os.environ["DATE"] = DATE  # the processes of one suite draw from one date, also around midnight

Case = TypeVar("Case")


class Tier:
    """Set once by conftest.py, before tests are collected: whether this is `make deep`, when its time is over, and the
    directory in memory that this process has made for files of tests."""

    deep = False
    until = float("inf")
    place: Path | None = None


def pick(every: Iterable[Case], few: Iterable[Case]) -> Iterator[Case]:
    """Cases of a matrix: the few in `make test`; in `make deep` then the others, in drawn order, while there is time."""
    first = list(few)
    yield from first
    others = [case for case in every if case not in first] if Tier.deep else []
    random.Random(SEED).shuffle(others)
    for case in others:
        if time.monotonic() > Tier.until:
            return
        yield case


def of_the_day(cases: Iterable[Case]) -> Case:
    """One of several cases of one kind, drawn by the date: in time every day's `make test` has had each of them."""
    whole = list(cases)
    return random.Random(f"{DATE}/{whole}").choice(whole)


def daily(cases: Iterable[object], many: int = 1) -> list[Any]:
    """Parameters of a matrix of one idea: some that are drawn by the date in `make test`, all in `make deep`."""
    whole = list(cases)
    chosen = random.Random(f"{DATE}/{whole}").sample(range(len(whole)), many)
    marks = (pytest.mark.deeper if at in chosen else pytest.mark.deep for at in range(len(whole)))
    return [pytest.param(case, marks=mark) for case, mark in zip(whole, marks, strict=True)]


def explore(world: World, agent: Agent[Any, Any], given: object) -> None:
    """Crash a run at every boundary: a third of such runs, drawn by the date, in `make test`, and all in `make deep`."""
    if Tier.deep or random.Random(f"{DATE}/{agent.name}/{given}").randrange(3) == 0:
        world.explore(agent, given)


def spread(row: Iterable[Case]) -> Iterator[Case]:
    """Cases of a long row: every third of them in `make test`, from a start drawn by the date; all in `make deep`."""
    whole = list(row)
    start = random.Random(f"{DATE}/{len(whole)}").randrange(3)
    return pick(whole, whole[start::3] or whole)


def ends(cases: Iterable[Case]) -> list[Case]:
    """The first of several cases and the last: the few of a list whose cases are one place in time after the other."""
    whole = list(cases)
    return whole if len(whole) <= 2 else [whole[0], whole[-1]]
