"""A whole trial: every input, repeated, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from holdfast.testing.trial.figures import ARMS, Group, InputFigures, Repeat, by_input, curve, grouped
from holdfast.testing.trial.performing import Wanted, perform_both


class Refused(msgspec.Struct, frozen=True):
    """A line of the inputs that does not fit, and why."""

    line: int
    problem: str


class ArmFigures(msgspec.Struct, frozen=True):
    """One arm: `curve` is pass^1, pass^2, ...; `passed` of `repeats` runs passed."""

    curve: list[float]
    passed: int
    repeats: int


class Report(msgspec.Struct, frozen=True):
    """What a trial found. `arms`: `plain`, and `faults` where there were any."""

    agent: str
    inputs: int
    repeat: int
    seed: int
    faults: list[str]
    check: str
    arms: dict[str, ArmFigures]
    figures: list[InputFigures]
    failures: list[Group]
    refused: list[Refused]
    runs: list[Repeat]

    @property
    def judged(self) -> ArmFigures | None:
        """The arm that decides: the one with faults, where there is one."""
        return self.arms.get("faults", self.arms.get("plain"))


class Plan(msgspec.Struct, frozen=True):
    """What to try: the inputs by their line, how often, from which seed."""

    inputs: Mapping[int, object]
    shown: Mapping[int, str]
    repeat: int
    seed: int


def try_all(wanted: Wanted, plan: Plan, advance: Callable[[Repeat], None]) -> list[Repeat]:
    """Run every input `repeat` times in each arm. `advance` is told of each run as it ends."""
    done: list[Repeat] = []
    for line, given in plan.inputs.items():
        for number in range(plan.repeat):
            for one in perform_both(wanted, line, given, plan.seed + number):
                done.append(one)
                advance(one)
    return done


def report(
    wanted: Wanted, plan: Plan, runs: Sequence[Repeat], refused: Iterable[Refused], command: Callable[[Group], str]
) -> Report:
    """The figures of these runs. `command` says how a failure is repeated."""
    figures = by_input(runs, plan.shown)
    arms: dict[str, ArmFigures] = {}
    for arm in ARMS:
        counts = [(plan.repeat, one.passed[arm]) for one in figures if arm in one.passed]
        if counts:
            arms[arm] = ArmFigures(curve(counts), sum(c for _, c in counts), sum(n for n, _ in counts))
    failures = [msgspec.structs.replace(group, command=command(group)) for group in grouped(runs)]
    check = "the run completed" if wanted.check is None else str(getattr(wanted.check, "__name__", wanted.check))
    return Report(
        wanted.agent.name, len(plan.inputs), plan.repeat, plan.seed, list(wanted.kinds), check, arms, figures, failures,
        list(refused), list(runs),
    )  # fmt: skip
