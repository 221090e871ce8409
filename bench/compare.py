"""Measure every goal and say whether it is met: `python bench/compare.py`, or `make bench`.

Exit status 0 when every goal is met, 1 when one is missed or could not be measured.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import peers
import report
from disk import Disk, open_disk
from goals import CASES, GOALS, RAW, SHOWN, Goal
from probes import PROBES
from sampling import Bench, Interpreters, Samples, SubjectError

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 2
SYNC_US: Final = 150  # a quiet local SSD; 1000 stands for an ordinary cloud volume


@dataclass(frozen=True)
class Result:
    """A goal and its figure, or the reason why there is none."""

    goal: Goal
    figure: float | None
    reason: str = ""

    @property
    def met(self) -> bool:
        return self.figure is not None and self.goal.met_by(self.figure)


def main() -> int:
    options = parse()
    with open_disk(options.sync_us) as disk:
        print(f"on {disk.description}", file=sys.stderr)
        results, samples = measure(disk, options)
    show(results, samples, disk, as_json=options.json)
    if options.write_docs:
        rows = [report.line(result.goal, result.figure, met=result.met) for result in results]
        report.write(rows, samples, disk)
    return 0 if all(result.met for result in results) else 1


def measure(disk: Disk, options: argparse.Namespace) -> tuple[list[Result], Samples]:
    goals = [goal for goal in GOALS if not options.only or goal.name in options.only]
    about_peers = [goal for goal in goals if goal.baseline and CASES[goal.baseline].peer]
    missed: list[Result] = []
    python = None
    if about_peers and not options.no_peers:
        python = peers.interpreter()
        if python is None:
            missed = [Result(goal, None, "the peers could not be installed") for goal in about_peers]
    if python is None:
        goals = [goal for goal in goals if goal not in about_peers]
    bench = Bench(disk, Interpreters(peers=python))
    shown = () if options.only else SHOWN
    samples = take_samples(bench, goals, shown, QUICK_ROUNDS if options.quick else options.rounds)
    return [judge(bench, goal, samples) for goal in goals] + missed, samples


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[goal.name for goal in GOALS], metavar="GOAL")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: a look, not a finding")
    parser.add_argument("--no-peers", action="store_true", help="leave the goals about other systems out")
    parser.add_argument("--sync-us", type=int, default=SYNC_US, help="what one sync takes; 0: the real disk")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into the documentation")
    options = parser.parse_args()
    if options.write_docs and (options.only or options.no_peers or options.quick):
        parser.error("--write-docs is for complete measurements: without --only, --no-peers and --quick")
    return options


def take_samples(bench: Bench, goals: Sequence[Goal], shown: Sequence[str], rounds: int) -> Samples:
    """The cases that the ratios need or that are shown; not the yardstick, which stands around each sample."""
    wanted = [name for goal in goals if goal.metric == "rate" for name in (goal.subject, goal.baseline) if name]
    names = [name for name in dict.fromkeys([*wanted, *shown]) if name != RAW]
    return bench.rounds(names, rounds) if names else Samples()


def judge(bench: Bench, goal: Goal, samples: Samples) -> Result:
    if goal.metric == "rate":
        assert goal.baseline is not None, goal
        for name in (goal.subject, goal.baseline):
            if name in samples.failed:
                return Result(goal, None, samples.failed[name].splitlines()[-1])
        return Result(goal, samples.ratio(goal.subject, goal.baseline))
    print(f"measuring: {goal.says}", file=sys.stderr)
    try:
        return Result(goal, PROBES[goal.metric](bench))
    except SubjectError as failed:
        return Result(goal, None, str(failed).splitlines()[-1])


def show(results: Sequence[Result], samples: Samples, disk: Disk, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_data(results, samples, disk), indent=2))
        return
    for result in results:
        verdict = "met   " if result.met else "MISSED"
        figure = result.reason if result.figure is None else f"{result.figure:8.2f} {result.goal.unit}"
        print(f"{verdict}  {result.goal.name:15} {result.goal.says:60} {figure:14} ({result.goal.bound})")
    if samples.disturbed:
        counted = sum(map(len, samples.relative.values()))
        print(
            f"{samples.disturbed} samples were disturbed; {samples.unquiet} of the {counted} that count are."
            " Where that is not 0, the machine is busy, and ratios of time come out too low",
            file=sys.stderr,
        )


def as_data(results: Sequence[Result], samples: Samples, disk: Disk) -> dict[str, object]:
    return {
        "disk": disk.description,
        "disturbed": samples.unquiet,
        "goals": [
            {
                "name": result.goal.name,
                "figure": result.figure,
                "bound": result.goal.bound,
                "met": result.met,
                "reason": result.reason,
            }
            for result in results
        ],
        "cases": {
            name: {
                "steps_per_s": samples.median(name, "steps_per_s"),
                "cpu_us_per_step": samples.median(name, "cpu_us_per_step"),
                "of_raw": statistics.median(relative),
                "waiting_for_a_processor": samples.median(name, "queued"),
            }
            for name, relative in samples.relative.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
