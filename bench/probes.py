"""The figures that are no ratio of two rates: replay, bytes, import time, memory."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from goals import CASES, Case, Metric
from sampling import Bench, Figures
from subjects.measure import ARGUMENT_BYTES, PAYLOAD_BYTES

FEW: Final = 1_000
MANY: Final = 10_000
LONG_RUN: Final = 20_000
CROWD: Final = 1_000_000
IMPORTS: Final = 15
USE: Final = "from beforehand import Beforehand, agent"
"""What a program imports: the package alone loads nothing before it is asked for something."""


def replay(bench: Bench) -> float:
    """Microseconds per step of a replay of `MANY` steps, from opening the journal to the next step."""
    return statistics.median(_resume_ms(bench, MANY) for _ in range(3)) * 1e3 / MANY


def replay_growth(bench: Bench) -> float:
    """How much dearer a step's replay is in a run ten times as long; 1 is linear."""
    return _replay_us(bench, MANY) / _replay_us(bench, FEW)


def bytes_per_step(bench: Bench) -> float:
    """Growth of the file per step, less arguments and result: the dearest of long and short runs, plain and keyed.

    A run's own records are in it: runs of 20 steps pay more of them a step than runs of 1,000.
    """
    sizes = [bench.take(case)["bytes_per_step"] for case in ("plain", "riding", "plain-100", "riding-100")]
    return max(sizes) - PAYLOAD_BYTES - ARGUMENT_BYTES


def import_ms(bench: Bench) -> float:
    """The best of several whole processes that only import what an agent needs.

    The best, since every disturbance can only lengthen it. The first one compiles, which an installation does
    once; its bytecode is kept in a directory of ours, since the environment may forbid to keep it elsewhere.
    """
    command: list[str | Path] = [bench.interpreters.ours, "-c", USE]
    with bench.disk.directory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return min(_milliseconds(command, environment) for _ in range(IMPORTS))


def memory_growth(bench: Bench) -> float:
    """Peak resident memory of a run of `LONG_RUN` steps over that of one of `FEW`."""
    long = _ours("rate", LONG_RUN)
    with bench.disk.directory() as directory:
        peak = bench.run(long, directory, delayed=False)["peak_mib"]
    with bench.disk.directory() as directory:
        return peak / bench.run(_ours("rate", FEW), directory, delayed=False)["peak_mib"]


def wake(bench: Bench) -> float:
    """How much longer a wake-up takes among `CROWD` that wait than among `FEW`: the worst kind of wake-up counts."""
    return _worst_growth(bench, "_us", times=3)


def wake_steps(bench: Bench) -> float:
    """The same in steps of SQLite's virtual machine, which do not depend on the machine; 1: nothing is scanned."""
    return _worst_growth(bench, "_steps", times=1)


def recovery(bench: Bench) -> float:
    """Runs that a new process drives to their end in a second; the best of three, as for a replay."""
    return max(_recovered(bench) for _ in range(3))


PROBES: Final[Mapping[Metric, Callable[[Bench], float]]] = {
    "replay": replay,
    "replay_growth": replay_growth,
    "bytes": bytes_per_step,
    "import": import_ms,
    "memory_growth": memory_growth,
    "wake": wake,
    "wake_steps": wake_steps,
    "recovery": recovery,
}


def _worst_growth(bench: Bench, unit: str, times: int) -> float:
    """Takes turns between both crowds, so that a disturbance hits both; the best of a few times counts for each."""
    taken = [(_wake_ups(bench, FEW), _wake_ups(bench, CROWD)) for _ in range(times)]
    kinds = [name for name in taken[0][0] if name.endswith(unit)]
    return max(min(many[kind] for _, many in taken) / min(few[kind] for few, _ in taken) for kind in kinds)


def _recovered(bench: Bench) -> float:
    with bench.disk.directory() as directory:
        return bench.run(CASES["recovering"], directory)["recovered_per_s"]


def _wake_ups(bench: Bench, crowd: int) -> Figures:
    with bench.disk.directory() as directory:
        return bench.run(replace(CASES["waking"], arguments=("--crowd", str(crowd))), directory)


def _replay_us(bench: Bench, steps: int, times: int = 3) -> float:
    """Kill a process inside step N+1, resume, and time from opening the journal to the entry of that step.

    What a replay of almost no steps takes is taken off: it is the cost of opening, not of replaying. The best of
    a few times counts, since a disturbance can only lengthen it.
    """
    took = min(_resume_ms(bench, steps) for _ in range(times))
    opening = min(_resume_ms(bench, 1) for _ in range(times))
    return (took - opening) * 1e3 / (steps - 1)


def _resume_ms(bench: Bench, steps: int) -> float:
    with bench.disk.directory() as directory:
        died = bench.start(_ours("die", steps), directory, delayed=False)
        assert died.returncode < 0, died.stderr
        return bench.run(_ours("resume", steps), directory)["resume_ms"]


def _ours(case: str, steps: int) -> Case:
    arguments = ("--case", case, "--kind", "riding", "--steps", str(steps))
    return replace(CASES["riding"], arguments=arguments)


def _milliseconds(command: Sequence[str | Path], environment: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    return (time.perf_counter() - start) * 1e3
