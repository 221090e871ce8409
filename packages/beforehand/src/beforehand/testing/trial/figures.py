"""The figures of a trial: pass^k, and failures grouped by their reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import comb
from typing import Final, Literal

import msgspec

Arm = Literal["plain", "faults"]
ARMS: Final[tuple[Arm, ...]] = ("plain", "faults")


class Repeat(msgspec.Struct, frozen=True):
    """One run of the agent. `reason` says why it did not pass; `faults` are its faults, in order."""

    line: int
    run: str
    seed: int
    arm: Arm
    passed: bool
    status: str
    reason: str = ""
    faults: list[str] = []
    effects: list[str] = []


class InputFigures(msgspec.Struct, frozen=True):
    """One input: the number of its repeats that passed in each arm."""

    line: int
    input: str
    passed: dict[str, int]
    repeats: int


class Group(msgspec.Struct, frozen=True):
    """Failures with the same reason. `command` repeats the first of them."""

    arm: Arm
    reason: str
    count: int
    lines: list[int]
    line: int
    seed: int
    faults: list[str]
    command: str = ""


def pass_hat(repeats: int, passed: int, k: int) -> float:
    """The unbiased estimate that k repeats all pass, from `passed` of `repeats`: C(passed, k) / C(repeats, k).

    It is the share of all choices of k repeats in which every one passed. (passed / repeats)^k would be biased
    upwards. Raises `ValueError` for more repeats than were made.
    """
    if not 1 <= k <= repeats or not 0 <= passed <= repeats:
        raise ValueError(f"k={k} and passed={passed} do not fit {repeats} repeats")
    return comb(passed, k) / comb(repeats, k)


def curve(counts: Sequence[tuple[int, int]]) -> list[float]:
    """pass^1, pass^2, ... as the mean over inputs; each input is (repeats, passed), with the same repeats."""
    if not counts:
        return []
    most = min(repeats for repeats, _ in counts)
    return [sum(pass_hat(n, c, k) for n, c in counts) / len(counts) for k in range(1, most + 1)]


def by_input(repeats: Iterable[Repeat], inputs: Mapping[int, str]) -> list[InputFigures]:
    """The repeats of each input, in the order of the inputs."""
    found: dict[int, dict[str, list[bool]]] = {line: {} for line in inputs}
    for one in repeats:
        found[one.line].setdefault(one.arm, []).append(one.passed)
    return [
        InputFigures(line, inputs[line], {arm: sum(ends) for arm, ends in arms.items()}, max(map(len, arms.values())))
        for line, arms in found.items()
        if arms
    ]


def grouped(repeats: Iterable[Repeat]) -> list[Group]:
    """Failures by arm and reason, most frequent first. Names and numbers that differ from run to run are left out."""
    found: dict[tuple[Arm, str], list[Repeat]] = {}
    for one in repeats:
        if not one.passed:
            found.setdefault((one.arm, alike(one.reason, one.run)), []).append(one)
    groups = [
        Group(arm, reason, len(ones), sorted({one.line for one in ones}), ones[0].line, ones[0].seed, ones[0].faults)
        for (arm, reason), ones in found.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, ARMS.index(group.arm), group.reason))


def alike(reason: str, run: str = "") -> str:
    """A reason without what names one run: its id, long numbers and keys."""
    text = re.sub(r"\S+/(?=[\w.-]+#\d)", "", " ".join(reason.split()))
    if run:
        text = re.sub(rf"(?<![\w.-]){re.escape(run)}(?![\w-])", "the run", text)
    return re.sub(r"\b(?:[0-9a-f]{12,}|\d{3,})\b", "…", text)
