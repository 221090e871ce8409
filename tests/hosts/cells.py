"""The cells of the table of hosts: a run is killed, resumed, and its effects are counted at the witness.

`python -m tests.hosts.cells TRIALS HOST PYTHON` runs every cell of a host with that interpreter, and prints them as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.hosts.world import SHAPES, effects

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
KILLS = ("before", "after", "record", "model")


class Cell(NamedTuple):
    """One case: where the first process dies, and what is different for the second."""

    name: str
    first: dict[str, object]
    second: dict[str, object] = {}
    answer: tuple[str, ...] = ()  # the command of a person between the two
    expects: str = ""  # what the end of the first process says, where it is not killed


class Ended(NamedTuple):
    """How a cell ended: counts of effects, and what is wrong, if anything is."""

    counts: dict[str, int]
    wrong: str = ""


def cells() -> list[Cell]:
    """Every cell of one host."""
    killed = [
        Cell(f"killed {_PLACES[kill]}, {shape}", {"shape": shape, "kill": kill}) for shape in SHAPES for kill in KILLS
    ]
    resolve = ("resolve", "r1/call_b/pay#1", "--happened", "--result", '"paid b"', "--by", "ann")
    yes = ("answer", "r1/call_a/pay#1", "yes", "--by", "ann")
    return [
        *killed,
        Cell("another answer after the crash", {"shape": "one by one", "kill": "after"}, {"changed": True}),
        Cell(
            "a tool of the host, outcome unknown", {"shape": "one by one", "kill": "after", "tool": "plain"},
            {"tool": "plain"}, resolve,
        ),
        Cell("approval while no process runs", {"shape": "one by one", "tool": "asked"}, {"tool": "asked"}, yes, "waits"),
    ]  # fmt: skip


_PLACES = {
    "before": "before the effect", "after": "after the effect", "record": "after the record", "model": "in a model call",
}  # fmt: skip


def trial(host: str, python: str, cell: Cell, *, durable: bool = True) -> Ended:
    """One trial of a cell, in a directory of its own."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        shape = str(cell.first["shape"])
        paid = [one for turn in SHAPES[shape] for one in turn]
        common = {"shape": shape, "durable": durable}
        code, said = _process(host, python, directory, {**common, **cell.first})
        if cell.expects and durable and not said.startswith(cell.expects):
            return Ended(_counts(directory), f"the first process ended otherwise: {said[-500:]}")
        if not cell.expects and code != -9:
            return Ended(_counts(directory), f"the first process was not killed: {said[-2000:]}")
        second = {**common, **cell.second}
        said = ""
        for _ in range(2 * len(paid) + 2):  # until nothing is waited for any more
            code, said = _process(host, python, directory, second)
            waits = _waiting(said)
            if code or not (durable and waits and cell.answer):
                break
            _answer(directory, cell.answer, waits, said)
        return _judged(directory, paid, code, said, changed=bool(second.get("changed")))


def _judged(directory: Path, paid: list[str], code: int, said: str, *, changed: bool) -> Ended:
    counts = _counts(directory)
    bases: Counter[str] = Counter()
    for what, count in counts.items():
        bases[what.removesuffix("-again") if changed else what] += count
    if code:
        return Ended(counts, "hangs" if code == HUNG else f"failed: {said[-2000:]}")
    if doubled := [one for one in paid if bases[one] > 1]:
        return Ended(counts, f"twice: {', '.join(doubled)}")
    if lost := [one for one in paid if not bases[one]]:
        return Ended(counts, f"lost: {', '.join(lost)}; it said {said[-500:]}")
    return Ended(counts)


HUNG = 124


def _process(host: str, python: str, directory: Path, scene: dict[str, object]) -> tuple[int, str]:
    command = [python, "-m", "tests.hosts.program", host, str(directory), json.dumps(scene)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return HUNG, "hangs"
    return done.returncode, done.stdout + done.stderr[-3000:] if done.returncode else done.stdout


def _shown(said: str) -> tuple[str, ...]:
    """The digest of what a person is shown, as the command that the run prints has it."""
    words = said.split()
    return ("--shown", words[words.index("--shown") + 1]) if "--shown" in words else ()


def _waiting(said: str) -> str:
    """The operation that a suspended run waits for."""
    if not said.startswith("waits: "):
        return ""
    return next((word.rstrip(":") for word in said.split() if word.startswith("r1/")), "")


def _answer(directory: Path, command: tuple[str, ...], operation: str, said: str) -> None:
    """Answer as a person does, on the command line; no process of the run lives now."""
    words = [*(operation if word.startswith("r1/") else word for word in command), *_shown(said)]
    holdfast = [sys.executable, "-m", "holdfast", "--journal", str(directory / "desk.db"), *words]
    done = subprocess.run(holdfast, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")


def _counts(directory: Path) -> dict[str, int]:
    return dict(Counter(one["what"] for one in effects(directory / "witness")))


def main() -> None:
    """Run the cells of one host, and print a line of JSON for each."""
    trials, host, python = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    for cell in cells():
        wrong = [ended.wrong for _ in range(trials) if (ended := trial(host, python, cell)).wrong]
        without = trial(host, python, cell, durable=False)
        print(json.dumps({"cell": cell.name, "wrong": wrong, "trials": trials, "without": without.wrong}), flush=True)


if __name__ == "__main__":
    main()
