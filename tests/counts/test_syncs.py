"""How often a step waits for the disk and how many statements it takes: exact, and the same on every machine.

Two programs that differ only in their number of steps run under strace; what one step costs is the difference of
their counts over the difference of their steps, so that opening, the run's start and its end do not matter.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAM = Path(__file__).parent / "steps.py"
FEW, MANY = 10, 50

# Only the journal's own files count: the anchor beside them is renewed once a second and no step waits for it.
SYNC = re.compile(r"\b(?:fsync|fdatasync)\(\d+<[^>]*journal\.db(?:-wal|-journal)?>")


class Cost(NamedTuple):
    """What one step, or one run, takes: syncs of the journal, and statements by their first word."""

    syncs: float
    statements: dict[str, float]


def count(folder: Path, kind: str, steps: int) -> tuple[int, Counter[str]]:
    folder.mkdir()
    trace = folder / "trace"
    watch = ["strace", "-f", "-y", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    program = [sys.executable, str(PROGRAM), str(folder / "journal.db"), kind, str(steps)]
    done = subprocess.run([*watch, *program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    syncs = sum(1 for line in trace.read_text().splitlines() if SYNC.search(line))
    return syncs, Counter(text.split()[0].lower() for text in json.loads(done.stdout))


def cost_of_one(folder: Path, kind: str) -> Cost:
    few_syncs, few = count(folder / "few", kind, FEW)
    many_syncs, many = count(folder / "many", kind, MANY)
    assert few_syncs > 0, "the trace shows no sync at all, so it proves nothing"
    steps = MANY - FEW
    return Cost((many_syncs - few_syncs) / steps, {word: n / steps for word, n in (many - few).items()})


@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        pytest.param("plain", Cost(2, {"insert": 2}), id="plain-write-waits-for-its-attempt-and-its-outcome"),
        pytest.param("keyed", Cost(1, {"insert": 1}), id="keyed-write-waits-for-its-attempt-its-outcome-rides"),
        pytest.param("read", Cost(0, {}), id="read-rides"),
        pytest.param(
            "run",
            Cost(2, {"begin": 2, "select": 2, "insert": 3, "update": 1, "commit": 2}),
            id="new-run-waits-for-its-claim-and-its-end",
        ),
    ],
)
def test_what_it_costs(tmp_path: Path, kind: str, cost: Cost) -> None:
    assert cost_of_one(tmp_path, kind) == cost
