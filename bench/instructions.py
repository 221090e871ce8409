"""How many instructions of the processor a step takes in user space, counted by callgrind: `make instructions`.

Each subject runs twice under valgrind, with few steps and with many; what one step takes is the difference of the
counts over the difference of the steps, so opening, the run's start and its end do not matter. Neither does the load of
the machine, since housekeeping, which goes by the clock, is off: the count is the same to about 1 %, on one Python and
one SQLite. Exit status 1 when a bound is missed, 0
with a message when valgrind is not installed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sampling import SUBJECTS

FEW: Final = 30
MANY: Final = 130
COLLECTED: Final = re.compile(r"Collected : (\d+)")


@dataclass(frozen=True)
class Counted:
    """One subject, and how many instructions a step of it may take."""

    says: str
    script: str
    arguments: tuple[str, ...]
    at_most: int | None = None


COUNTED: Final[Mapping[str, Counted]] = {
    "raw": Counted("sqlite3, two commits a step", "raw.py", ("--commits", "2")),
    "least": Counted("the least that a plain write can be from asyncio", "floor.py", ("--bare",)),
    "floor": Counted("a plain write with our precautions and no runtime", "floor.py", ()),
    "plain": Counted("Beforehand, plain write", "ours.py", ("--kind", "plain", "--by-count"), 300_000),
    "riding": Counted("Beforehand, keyed write", "ours.py", ("--kind", "riding", "--by-count"), 260_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=COUNTED, metavar="SUBJECT")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind is not installed, so no instructions are counted", file=sys.stderr)
        return 0
    found = {name: per_step(COUNTED[name]) for name in options.only or COUNTED}
    show(found, as_json=options.json)
    return 0 if all(met(name, count) for name, count in found.items()) else 1


def per_step(counted: Counted, few: int = FEW, many: int = MANY) -> float:
    """Instructions of one step."""
    print(f"counting: {counted.says}", file=sys.stderr)
    return (instructions(counted, many) - instructions(counted, few)) / (many - few)


def instructions(counted: Counted, steps: int) -> int:
    """Instructions of the whole process of a subject."""
    with tempfile.TemporaryDirectory(prefix="beforehand-bench-") as directory:
        program = [sys.executable, SUBJECTS / counted.script, "--directory", directory, "--steps", str(steps)]
        done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *program, *counted.arguments])
    found = COLLECTED.search(done.stderr)
    if done.returncode or found is None:
        raise SystemExit(f"{counted.says}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    return int(found[1])


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # the order in a set must not change from process to process
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def met(name: str, count: float) -> bool:
    bound = COUNTED[name].at_most
    return bound is None or count <= bound


def show(found: Mapping[str, float], *, as_json: bool) -> None:
    if as_json:
        rows = {
            name: {"instructions": round(count), "bound": COUNTED[name].at_most, "met": met(name, count)}
            for name, count in found.items()
        }
        print(json.dumps(rows, indent=2))
        return
    for name, count in found.items():
        bound = COUNTED[name].at_most
        verdict = "      " if bound is None else "met   " if met(name, count) else "MISSED"
        limit = "" if bound is None else f"(at most {bound:,})"
        print(f"{verdict}  {name:8} {COUNTED[name].says:52} {count:10,.0f}  {limit}")


if __name__ == "__main__":
    sys.exit(main())
