"""The cells of the table of hosts: a run is killed, resumed, and its effects are counted at the witness.

`python -m tests.hosts.cells TRIALS HOST PYTHON [LOWEST]` runs every cell of a host with that interpreter, and prints them
as JSON. `LOWEST` is an interpreter with the lowest supported version of the host.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.stage import Zygote
from tests.hosts.children import hosted
from tests.hosts.world import SHAPES, effects

LIMIT_S = 60
KILLS = {
    "before": "before the effect", "after": "after the effect", "record": "after the record", "model": "in a model call",
}  # fmt: skip
KILLED, HUNG = -9, None
CANCEL = {"command": ["cancel", "r1", "--why", "asked twice", "--by", "ann"]}
Life = dict[str, Any]


class Cell(NamedTuple):
    """One case: the lives of a run, each a scene or a command, and what is different from a run that is only killed.

    The last life is repeated, with the answers of a person in between, until the run waits for nothing. A life that is
    not the last one ends as `ends` says: killed, or with a text that begins so.
    """

    name: str
    lives: tuple[Life, ...]
    ends: str = "killed"
    at_last: str = "paid a; "  # what the last life says, where it is right
    lands: str = "abc"
    upgraded: bool = False  # the first life has the lowest supported version of the host, the others the newest


class Ended(NamedTuple):
    """How a cell ended: counts of effects, and what is wrong, if anything is."""

    counts: dict[str, int]
    wrong: str = ""


def cells(host: str) -> list[Cell]:
    """Every cell of one host."""
    one, beside = {"shape": "one by one"}, {"shape": "in parallel"}
    after = {**one, "kill": "after"}
    plain, asked, host_asks = ({**one, "tool": tool} for tool in ("plain", "asked", "host asks"))
    found = [
        *(
            Cell(f"killed {place}, {shape}", ({"shape": shape, "kill": kill}, {"shape": shape}))
            for shape in SHAPES
            for kill, place in KILLS.items()
        ),
        Cell("another answer after the crash", (after, {**one, "changed": True})),
        Cell("an answer is lost and the host retries, killed", ({**after, "lost": True}, {**one, "lost": True})),
        Cell("approval while no process runs", (asked, asked), "waits: "),
        Cell("killed after an approved effect", (asked, asked, {**asked, "kill": "after"}, asked), "waits: "),
        Cell("cancelled while no process runs", (after, CANCEL, one), at_last="stopped: cancelled", lands="ab"),
        Cell("cancelled inside a call", ({**one, "cancels": True}, one), "stopped: cancelled", "stopped: ", "ab"),
    ]
    if host != "loop":  # its tools are all of Beforehand, and it has no version of its own
        found += [
            Cell("a tool of the host, outcome unknown", ({**plain, "kill": "after"}, plain)),
            Cell("the same in parallel", ({**beside, "tool": "plain", "kill": "after"}, {**beside, "tool": "plain"})),
            Cell("a tool of the host raises, outcome unknown", ({**plain, "lost": True}, plain), "waits: "),
            Cell("the host's approval, while no process runs", (host_asks, host_asks), "waits: "),
            Cell(
                "killed after an effect that the host asked about",
                (host_asks, host_asks, {**host_asks, "kill": "after"}, host_asks),
                "waits: ",
            ),
        ]
    if host in UPGRADED:
        found += [
            Cell(f"the host upgraded, {shape}", ({"shape": shape, "kill": "after"}, {"shape": shape}), upgraded=True)
            for shape in SHAPES
        ]
    return found


UPGRADED = ("langchain", "openai_agents", "google_adk", "crewai")
"""Hosts with an environment for their lowest supported version. Pydantic AI has one supported version today."""


class World(NamedTuple):
    """The processes of one trial, and its directory."""

    directory: Path
    zygotes: list[Zygote]  # of the first life, and of the others

    def life(self, number: int, job: dict[str, Any]) -> tuple[int | None, Any, str]:
        """One process to its end: its exit status, its answer, and what it printed."""
        out, log = self.directory / "out", self.directory / "log"
        for left in (out, log):
            left.unlink(missing_ok=True)
        parent = self.zygotes[min(number, 1)]
        pid = parent.ask(start={**job, "directory": str(self.directory), "out": str(out), "log": str(log)})
        status = parent.ask(wait=pid, seconds=LIMIT_S)
        return status, json.loads(out.read_text()) if out.exists() else "", log.read_text() if log.exists() else ""

    def command(self, *words: str) -> str:
        """What a person reads who gives this command; no process of the run lives now."""
        status, answer, log = self.life(1, {"command": words})
        if status or answer[0]:
            raise RuntimeError(f"beforehand {' '.join(words)}: {answer} {log}")
        return str(answer[1])

    def counts(self) -> dict[str, int]:
        return dict(Counter(one["what"] for one in effects(self.directory / "witness")))

    def answer(self) -> None:
        """Answer everything in the inbox: approve what asks for it, and say of the rest what the witness has."""
        items = json.loads(self.command("inbox", "--json"))
        if not items:
            raise RuntimeError("the run waits, and the inbox is empty")
        for item in items:
            name = item["item"]
            words = self.command("inbox", "--item", name).split()
            shown = words[words.index("--shown") :][:2] if "--shown" in words else []
            if item["kind"] == "approval":
                self.command("answer", name, "yes", "--by", "bea", *shown)
                continue
            paid = name.split("call_")[1][0]
            landed = (
                ("--happened", "--result", f'"paid {paid}"')
                if paid in self.counts()
                else ("--did-not-happen", "--retry")
            )
            self.command("resolve", name, *landed, "--evidence", "the service says so", "--by", "ann", *shown)


def trial(host: str, python: str, cell: Cell, *, lowest: str = "", durable: bool = True) -> Ended:
    """One trial of a cell, in a directory of its own."""
    first = lowest if cell.upgraded and durable else python
    with tempfile.TemporaryDirectory() as made:
        world = World(Path(made), [hosted(host, first), hosted(host, python)])
        return _through(world, cell) if durable else _without(world, cell)


def _through(world: World, cell: Cell) -> Ended:
    for number, life in enumerate(cell.lives[:-1]):
        if "command" in life:
            world.command(*life["command"])
            continue
        status, said, log = world.life(number, {"scene": life})
        wanted = "killed" if life.get("kill") else cell.ends
        if status != KILLED if wanted == "killed" else status or not said.startswith(wanted):
            return Ended(world.counts(), f"life {number + 1} ended otherwise: {status} {said} {log[-2000:]}")
        if wanted.startswith("waits"):
            world.answer()
    for _ in range(8):  # more answers than the plan has payments
        status, said, log = world.life(1, {"scene": cell.lives[-1]})
        if status or not said.startswith("waits: "):
            break
        world.answer()
    if status == HUNG:
        return Ended(world.counts(), "hangs")
    if status or not said.startswith(cell.at_last):
        return Ended(world.counts(), f"the last life ended otherwise: {status} {said} {log[-2000:]}")
    return _judged(world, cell)


def _without(world: World, cell: Cell) -> Ended:
    """The same without Beforehand: the process is started again, once."""
    scenes = [life for life in cell.lives if "command" not in life]
    for number, scene in enumerate((scenes[0], scenes[-1])):
        world.life(number, {"scene": {**scene, "durable": False}})
    return _judged(world, cell)


def _judged(world: World, cell: Cell) -> Ended:
    counts = world.counts()
    bases: Counter[str] = Counter()
    for what, count in counts.items():
        bases[what.removesuffix("-again")] += count
    if doubled := [one for one in "abc" if bases[one] > 1]:
        return Ended(counts, f"twice: {', '.join(doubled)}")
    if lost := [one for one in cell.lands if not bases[one]]:
        return Ended(counts, f"lost: {', '.join(lost)}")
    if more := [one for one in "abc" if bases[one] and one not in cell.lands]:
        return Ended(counts, f"not stopped: {', '.join(more)}")
    return Ended(counts)


def main() -> None:
    """Run the cells of one host, and print a line of JSON for each."""
    trials, host, python = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    lowest = sys.argv[4] if len(sys.argv) > 4 else ""
    for cell in cells(host):
        wrong = [ended.wrong for _ in range(trials) if (ended := trial(host, python, cell, lowest=lowest)).wrong]
        without = trial(host, python, cell, durable=False)
        print(json.dumps({"cell": cell.name, "wrong": wrong, "trials": trials, "without": without.wrong}), flush=True)


if __name__ == "__main__":
    main()
