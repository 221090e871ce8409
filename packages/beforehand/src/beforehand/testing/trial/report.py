"""A whole trial: every input, repeated, with its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from beforehand.testing.trial.figures import ARMS, Arm, Group, InputFigures, Repeat, by_input, curve, grouped
from beforehand.testing.trial.performing import Wanted, perform_both


class TrialRefused(msgspec.Struct, frozen=True):
    """A line of the inputs that does not fit, and why."""

    line: int
    problem: str


class ArmFigures(msgspec.Struct, frozen=True):
    """One arm: `curve` is pass^1, pass^2, ...; `passed` of `repeats` runs passed."""

    curve: list[float]
    passed: int
    repeats: int


class Report(msgspec.Struct, frozen=True):
    """The result of a trial. `arms`: `plain`, and `faults` if there were any.

    An `interrupted` trial made fewer `runs` than `planned`; its curves are those of the cases that were
    repeated as often as planned, if there are any.
    """

    agent: str
    inputs: int
    repeat: int
    seed: int
    faults: list[str]
    check: str
    arms: dict[str, ArmFigures]
    figures: list[InputFigures]
    failures: list[Group]
    refused: list[TrialRefused]
    runs: list[Repeat]
    planned: int
    interrupted: bool = False

    @property
    def judged(self) -> ArmFigures | None:
        """The arm that decides: the one with faults, if there is one."""
        return self.arms.get("faults", self.arms.get("plain"))


class TrialPlan(msgspec.Struct, frozen=True):
    """The plan of a trial: the inputs by their line, how often, from which seed."""

    inputs: Mapping[int, object]
    shown: Mapping[int, str]
    repeat: int
    seed: int


def try_all(wanted: Wanted, plan: TrialPlan) -> Iterator[Repeat]:
    """Run every input `repeat` times in each arm, and give each run as it has ended."""
    for line, given in plan.inputs.items():
        for number in range(plan.repeat):
            yield from perform_both(wanted, line, given, plan.seed + number)


def planned(wanted: Wanted, plan: TrialPlan) -> int:
    """How many runs that is."""
    return len(plan.inputs) * plan.repeat * (2 if wanted.kinds else 1)


def report(
    wanted: Wanted,
    plan: TrialPlan,
    runs: Sequence[Repeat],
    refused: Iterable[TrialRefused],
    command: Callable[[Group], str],
) -> Report:
    """The figures of these runs. `command` is how to repeat a failure."""
    arms: dict[str, ArmFigures] = {
        arm: found for arm in ARMS if (found := _figures(runs, arm, plan.repeat)) is not None
    }
    failures = [msgspec.structs.replace(group, command=command(group)) for group in grouped(runs)]
    due = planned(wanted, plan)
    check = "the run completed" if wanted.check is None else str(getattr(wanted.check, "__name__", wanted.check))
    return Report(
        wanted.agent.name, len(plan.inputs), plan.repeat, plan.seed, list(wanted.kinds), check, arms,
        by_input(runs, plan.shown), failures, list(refused), list(runs), due, len(runs) < due,
    )  # fmt: skip


def _figures(runs: Sequence[Repeat], arm: Arm, repeat: int) -> ArmFigures | None:
    made, passed = Counter[int](), Counter[int]()
    for one in runs:
        if one.arm == arm:
            made[one.line] += 1
            passed[one.line] += one.passed
    if not made:
        return None
    counts = [(made[line], passed[line]) for line in made]
    whole = [count for count in counts if count[0] == repeat] or counts
    return ArmFigures(curve(whole), passed.total(), made.total())
