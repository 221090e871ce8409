"""Samples of cases: each in a fresh process, and each between two runs of the yardstick.

The machine may be shared, so a rate alone means nothing. A sample is divided by the mean of the raw runs
before and after it. That evens out the speed of the disk and not the load of the processors: the yardstick mostly
sleeps, and a subject that computes more loses more. So a sample is also taken again when it waited for a processor,
and the calmest one counts.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from disk import Disk
from goals import CASES, RAW, Case

SUBJECTS: Final = Path(__file__).parent / "subjects"
TIMEOUT_S: Final = 300
CALM: Final = 1.25  # the two raw runs around a sample may differ by this factor
QUEUED: Final = 0.1  # the part of its time that a sample or its yardstick may wait for a processor
RETAKES: Final = 2

Figures = Mapping[str, float]


class SubjectError(Exception):
    """A subject's process ended without a result; carries what it wrote on standard error."""


@dataclass(frozen=True)
class Interpreters:
    """The Python that runs us and, when it is installed, the one that has the peers."""

    ours: Path = Path(sys.executable)
    peers: Path | None = None

    def for_case(self, case: Case) -> Path:
        if not case.peer:
            return self.ours
        assert self.peers is not None, case
        return self.peers


@dataclass
class Samples:
    """What the rounds brought: per case one relative rate and all figures a round, and what failed."""

    relative: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, list[Figures]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    disturbed: int = 0  # samples that were taken again, or kept as the calmest of several
    unquiet: int = 0  # samples that count though they were disturbed, since no calm one was had

    def add(self, name: str, figures: Figures, relative: float) -> None:
        self.relative.setdefault(name, []).append(relative)
        self.figures.setdefault(name, []).append(figures)

    def ratio(self, subject: str, baseline: str) -> float:
        """The median over rounds of one rate over the other, each relative to its own yardstick."""
        if baseline == RAW:
            return statistics.median(self.relative[subject])
        pairs = zip(self.relative[subject], self.relative[baseline], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def median(self, name: str, figure: str) -> float:
        return statistics.median(figures[figure] for figures in self.figures[name])


@dataclass(frozen=True)
class Bench:
    """Runs cases on one disk."""

    disk: Disk
    interpreters: Interpreters

    def take(self, name: str) -> Figures:
        """One case in a fresh process and a fresh directory."""
        case = CASES[name]
        with self.disk.directory() as directory:
            return self.run(case, directory)

    def run(self, case: Case, directory: Path, *, delayed: bool = True) -> Figures:
        """One case in a directory that may hold what an earlier one left.

        Raises `SubjectError` when it printed no result.
        """
        done = self.start(case, directory, delayed=delayed)
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            raise SubjectError(f"{case.says}: exit status {done.returncode}\n{done.stderr[-3000:]}")
        figures: Figures = json.loads(lines[-1])
        return figures

    def start(self, case: Case, directory: Path, *, delayed: bool = True) -> subprocess.CompletedProcess[str]:
        python = self.interpreters.for_case(case)
        command: list[str | Path] = [python, SUBJECTS / case.script, "--directory", directory]
        return subprocess.run(
            [*command, *case.arguments],
            env=self.disk.environment(delayed=delayed),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def rounds(self, names: Sequence[str], count: int) -> Samples:
        """Every case once a round, in an order that differs from round to round."""
        samples = Samples()
        raw = self.take(RAW)
        for number in range(count):
            for name in Random(number).sample(names, len(names)):
                if name not in samples.failed:
                    raw = self._paired(name, raw, samples)
            print(f"round {number + 1} of {count} done", file=sys.stderr)
        return samples

    def _paired(self, name: str, before: Figures, samples: Samples) -> Figures:
        """Take one sample between two raw runs; gives the later raw run, the next sample's first."""
        taken: list[tuple[float, Figures, float]] = []
        for _ in range(RETAKES + 1):
            try:
                figures = self.take(name)
            except SubjectError as failed:
                print(failed, file=sys.stderr)
                samples.failed[name] = str(failed)
                return before
            after = self.take(RAW)
            around = (before["steps_per_s"], after["steps_per_s"])
            relative = figures["steps_per_s"] / statistics.mean(around)
            queued = max(before["queued"], figures["queued"], after["queued"])
            before = after
            apart = max(around) / min(around)
            taken.append((max(queued / QUEUED, apart / CALM), figures, relative))
            if taken[-1][0] <= 1:
                break
            samples.disturbed += 1
        disturbance, figures, relative = min(taken, key=lambda one: one[0])
        samples.add(name, figures, relative)
        samples.unquiet += disturbance > 1
        rate = f"{figures['steps_per_s']:9,.0f} steps/s, {relative:6.2f} of raw"
        print(f"  {CASES[name].says:58} {rate}", file=sys.stderr)
        return after
