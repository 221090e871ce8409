"""`make deep`: what `make test` does once, in depth, drawn afresh each time, for as long as it is given.

    python -m scripts.deep --minutes 30
    python -m scripts.deep --minutes 10 --only crash --only races
    python -m scripts.deep --only sim --seed 42

Every part draws from one number, which is printed; `--draw` repeats it. The parts run one after the other, each on
all cores, and each has its share of the time that is left, so what one part does not need goes to the others. What
was not reached when the time was over is named. The exit status is 1 where a draw was red, and 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
LEAST_S: Final = 5.0
"""A part that would have less time than this is not begun."""
RESERVE: Final = 0.15
"""The share of a part's time in which nothing new begins: what has begun may end."""
CRASH: Final = ("tests/crash", "tests/world", "tests/disk", "tests/demo", "tests/stress")
HOSTS: Final = ("tests/hosts", "tests/cli/test_init.py", "tests/docs/test_pages.py")
RACES: Final = ("tests/races", "tests/stress")
REST: Final = ("tests/unit", "tests/cli", "tests/docs", "tests/simulation", "tests/counts", "examples")
NAMED: Final = 12
"""So many tests that were not reached are printed by name, for each part; the others are counted."""


DEEP: Final = "deep or deeper"
LATE: Final = "not reached"
"""How `tests/conftest.py` notes a test that was to begin when the time was over."""


class Budget(NamedTuple):
    """The time of one part, on the monotonic clock: no work begins after `until`, none goes on after `end`."""

    until: float
    end: float

    @property
    def seconds(self) -> float:
        return max(1.0, self.until - time.monotonic())


class Verdict(NamedTuple):
    """What a part did, in one sentence; the commands that repeat what was red; and what was not reached."""

    sentence: str
    red: list[str]
    not_reached: list[str]


class Ended(NamedTuple):
    """How a command ended: its exit status, None where its time was over, and its lines, if captured."""

    status: int | None
    lines: list[str]


Run = Callable[[Budget, int, list[str]], Verdict]
"""From the time, the number to draw from and further arguments to what the part did."""


class Part(NamedTuple):
    """A name for ONLY, its share of the time, a sentence about it, and the function that runs it."""

    name: str
    share: int
    about: str
    run: Run


def tested(*paths: str, only: str, marks: str = DEEP, rounds: bool = False) -> Run:  # noqa: PT028 -- no test
    """A part that runs tests with pytest, in drawn order; in `rounds`, again and again with another draw each time."""

    def run(budget: Budget, draw: int, arguments: list[str]) -> Verdict:
        ended, red, late, round_number = 0, list[str](), list[str](), 0
        while round_number == 0 or (rounds and not red and budget.until - time.monotonic() > LEAST_S):
            seed = draw + round_number
            status, progress = _pytest(budget, seed, ["-m", marks, *(arguments or paths)])
            ended += sum(outcome != LATE for outcome in progress.values() if outcome)
            late = [test for test, outcome in progress.items() if outcome in {"", LATE}]
            red += [
                f"make deep ONLY={only} DRAW={seed} ARGS={_quoted(test)}"
                for test, outcome in progress.items()
                if outcome == "failed"
            ]
            if status not in {0, 1, None}:  # an error of collection or of pytest, or no test at all
                red.append(f"make deep ONLY={only} DRAW={seed}")
            if status is None and not progress:
                late.append("any test: to collect them took longer than its time")
            round_number += 1
        again = f" in {round_number} rounds" if rounds else ""
        return Verdict(f"{ended} tests{again}", red, late if round_number == 1 else [])

    return run


def _quoted(test: str) -> str:
    """A test's name as one word of ARGS, which is read by a shell, then by make, then by another shell."""
    word = shlex.quote(test)
    return f'"{word}"' if not set(test) & set("\"'$`\\!") else shlex.quote(word.replace("$", "$$"))


def _pytest(budget: Budget, seed: int, arguments: list[str]) -> tuple[int | None, dict[str, str]]:
    """The exit status, None where the time was over, and the outcome of each test; empty for one that was cut off."""
    with tempfile.TemporaryDirectory() as directory:
        told = Path(directory) / "progress"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--deep",
            f"--hypothesis-seed={seed}",
            f"--until={budget.until}",
        ]
        command += ["-o", "faulthandler_exit_on_timeout=false"]  # a test in depth may take as long as the part has
        command += [f"--progress-file={told}", "-n", "auto", "--dist", "worksteal", "-rfE", "--no-header", *arguments]
        status = _run(command, budget.end, BEFOREHAND_SEED=str(seed)).status
        return status, _outcomes(told.read_text(encoding="utf-8").splitlines() if told.exists() else ())


def _outcomes(lines: Iterable[str]) -> dict[str, str]:
    """The outcome of each test, from the lines of `--progress-file`; empty for one that began and did not end."""
    progress: dict[str, str] = {}
    for line in lines:
        noted = json.loads(line)
        # The end of a test is noted last, and it ends well after it has failed or was left out, too.
        if progress.get(noted["test"]) not in {"failed", LATE}:
            progress[noted["test"]] = noted.get("ended", "")
    return progress


def simulated(budget: Budget, draw: int, arguments: list[str]) -> Verdict:
    """Simulates seeds from a drawn one on, of every kind of plan."""
    first = random.Random(draw).randrange(10_000, 400_000)  # noqa: S311 -- a draw that has to be repeatable
    words = ["--first", str(first), "--seeds", "100000", "--seconds", f"{budget.seconds:.0f}", *arguments]
    ended = _run([sys.executable, "-m", "simulator", "many", *words], budget.end, captured=True)
    return _verdict(ended, f"make deep ONLY=sim DRAW={draw}", f", from seed {first}")


def planted(budget: Budget, draw: int, arguments: list[str]) -> Verdict:
    """Plants the bugs of the catalogue, each at the seed that found it last, then in drawn seeds."""
    command = [sys.executable, "-m", "simulator.mutations.planting"]
    words = ["--seconds", f"{budget.seconds:.0f}", "--draw", str(draw), *arguments]
    return _verdict(_run([*command, *words], budget.end, captured=True), f"make deep ONLY=mutants DRAW={draw}")


def soaked(budget: Budget, draw: int, arguments: list[str]) -> Verdict:
    """Keeps runs alive, kills their processes, and counts their effects outside."""
    minutes = (budget.seconds - 20) / 60
    if minutes < 0.2 and not arguments:
        return Verdict("no time", [], ["a soak of live runs (it needs 35 s)"])
    words = ["--minutes", f"{minutes:.2f}", "--seed", str(draw), "--runs", "60", "--kill-every", "6", *arguments]
    ended = _run([sys.executable, "bench/soak_live.py", *words], budget.end, captured=True)
    return _verdict(ended, f"make deep ONLY=soak DRAW={draw} MINUTES={minutes + 1:.0f}")


def _verdict(ended: Ended, repeat: str, more: str = "") -> Verdict:
    """From what a command printed: its last line, and its lines `repeat: ...` and `not reached: ...`."""
    lines = [line.strip() for line in ended.lines]
    red = [line.removeprefix("repeat: ") for line in lines if line.startswith("repeat: ")]
    late = [line.removeprefix("not reached: ") for line in lines if line.startswith("not reached: ")]
    if ended.status is None:
        return Verdict("cut off", red, [*late, "its end: what had begun took longer than its time"])
    return Verdict(f"{lines[-1] if lines else 'nothing'}{more}", red or ([repeat] if ended.status else []), late)


PARTS: Final = (
    Part("sim", 3, "seeds of the simulator, of every kind of plan", simulated),
    Part("mutants", 3, "every planted bug, at its seed and in drawn ones", planted),
    Part("crash", 3, "processes killed at every boundary, and disks that fail", tested(*CRASH, only="crash")),
    Part("hosts", 3, "agent frameworks, lowest and newest versions", tested(*HOSTS, only="hosts")),
    Part(
        "property",
        2,
        "properties over drawn examples",
        tested("tests", marks="hypothesis", rounds=True, only="property"),
    ),
    Part("races", 1, "races of threads and processes", tested(*RACES, marks="", rounds=True, only="races")),
    Part("e2e", 1, "pages in a browser, and the API", tested("tests/e2e", "tests/api", only="e2e")),
    Part("rest", 2, "all other tests that are marked deep", tested(*REST, only="rest")),
    Part("soak", 2, "live runs, kills, and a witness outside", soaked),
)


def main() -> int:
    """Run the parts, print a line for each, and say what was red and what was not reached."""
    given = _arguments()
    chosen = [part for part in PARTS if part.name in given.only] if given.only else list(PARTS)
    if given.seed is not None:
        return _one_seed(given.seed, given.arguments)
    draw = given.draw if given.draw is not None else random.SystemRandom().randrange(1_000_000)
    start = time.monotonic()
    end = start + given.minutes * 60
    names = ", ".join(part.name for part in chosen)
    print(f"{given.minutes:g} minutes for {names}; drawn from {draw} (DRAW={draw} repeats it)")
    red, late = list[str](), list[str]()
    for number, part in enumerate(chosen):
        begun, left = time.monotonic(), sum(later.share for later in chosen[number:])
        seconds = (end - begun) * part.share / left
        if seconds < LEAST_S:
            late.append(f"{part.name}: {part.about}")
            continue
        print(f"\n== {part.name}: {part.about} (at most {seconds:.0f} s)", flush=True)
        verdict = part.run(Budget(begun + seconds * (1 - RESERVE), begun + seconds), draw, given.arguments)
        print(f"{part.name}: {time.monotonic() - begun:.0f} s: {verdict.sentence}", flush=True)
        red += verdict.red
        late += [f"{part.name}: {text}" for text in _shortened(verdict.not_reached)]
    return _said(red, late, time.monotonic() - start)


def _said(red: Sequence[str], late: Sequence[str], seconds: float) -> int:
    print()
    for text in late:
        print(f"not reached: {text}")
    for command in red:
        print(f"red, repeat: {command}")
    print(f"== deep: {seconds:.0f} s, {len(red)} red draws" + ("" if late else ", all reached"))
    return 1 if red else 0


def _shortened(texts: list[str]) -> list[str]:
    more = len(texts) - NAMED
    return [*texts[:NAMED], *([f"and {more} more"] if more > 0 else [])]


def _one_seed(seed: int, arguments: list[str]) -> int:
    """Tell the story of one seed of the simulator."""
    return subprocess.run(
        [sys.executable, "-m", "simulator", "one", str(seed), *arguments], cwd=ROOT, check=False
    ).returncode


def _run(command: list[str], end: float, *, captured: bool = False, **variables: str) -> Ended:
    """Run a command, and end it with all its processes at `end`."""
    pipe = subprocess.PIPE if captured else None
    group = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
        stdout=pipe,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = group.communicate(timeout=max(0.1, end - time.monotonic()))
        status: int | None = group.returncode
    except subprocess.TimeoutExpired:
        os.killpg(group.pid, signal.SIGKILL)  # the session that this function began
        out, _ = group.communicate()
        status = None  # not red: its progress tells how far it came
    lines = (out or "").splitlines()
    if lines:
        print("\n".join(lines[-30:]), flush=True)
    return Ended(status, lines)


def _arguments() -> argparse.Namespace:
    names = {part.name for part in PARTS}
    parser = argparse.ArgumentParser(
        prog="make deep", description="Tests in depth, drawn afresh, for as long as they are given.",
        usage="make deep [MINUTES=30] [ONLY=NAME,...] [DRAW=NUMBER] [SEED=NUMBER] [ARGS=...]",
        epilog="parts: " + "; ".join(f"{part.name}: {part.about}" for part in PARTS),
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=30, help="the time for all chosen parts")
    parser.add_argument(
        "--only", type=_words, action="extend", default=[], metavar="NAME", help="parts; all by default"
    )
    parser.add_argument("--draw", type=int, help="the number from which everything is drawn")
    parser.add_argument("--seed", type=int, help="one simulated seed: tell its story")
    parser.add_argument("arguments", nargs="*", help="handed to the command of the part, after --")
    given = parser.parse_args()
    if strange := [name for name in given.only if name not in names]:
        parser.error(
            f"ONLY names no part: {', '.join(strange)}; the parts are {', '.join(part.name for part in PARTS)}"
        )
    if not given.minutes * 60 >= LEAST_S:
        parser.error(f"MINUTES must leave time for one part, {LEAST_S:.0f} seconds, got {given.minutes:g} minutes")
    if given.seed is not None and given.only != ["sim"]:
        parser.error("SEED tells the story of one simulated seed: add ONLY=sim")
    if given.seed is not None and given.seed < 0:
        parser.error(f"SEED is a whole number from 0 on, got {given.seed}")
    if given.arguments and len(given.only) != 1:
        parser.error("ARGS are handed to one part: name it with ONLY")
    return given


def _words(text: str) -> Iterator[str]:
    return iter(word for word in text.replace(",", " ").split())


if __name__ == "__main__":
    sys.exit(main())
