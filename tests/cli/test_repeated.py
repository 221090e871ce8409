"""A command that was killed anywhere is given again, and ends as if it had not been: same status, same last line."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.lab import Lab

# Dies by a real SIGKILL after its nth write to the journal.
DIES = """
import os, signal, sys
from holdfast.interfaces.cli.main import main
from holdfast.journal.sqlite.journal import SqliteJournal

left = int(sys.argv[1])


def dying(name):
    write = getattr(SqliteJournal, name)

    async def body(*args, **kwargs):
        global left
        left -= 1
        done = await write(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(SqliteJournal, name, body)


for name in ("append", "post", "post_all"):
    dying(name)
main(sys.argv[2:])
"""
DESK = """
from datetime import timedelta
from pathlib import Path

from holdfast import Key, Natural, Operation, Run, agent, current_operation, tool

WORLD = Path(__file__).with_name("effects")


@tool(idempotency=Key.forever(stores="all"), gate="cents > 50")
async def pay(cents: int) -> str:
    WORLD.mkdir(exist_ok=True)
    (WORLD / current_operation().key).write_text(str(cents))
    return "paid"


@pay.compensate(restores=True)
@tool(idempotency=Natural(within=timedelta(days=1)))
async def unpay(operation: Operation[str], cents: int) -> None:
    (WORLD / "back").write_text(str(cents))


@tool
async def mail(to: str) -> None:
    raise TimeoutError("no answer")


@agent(run_id="{name}", tools=[pay, mail])
async def desk(run: Run, name: str) -> str:
    if name == "paid":
        return await pay(5)
    if name == "gated":
        return await pay(500)
    if name == "asks":
        return str(await run.ask("Which one?", choices=("a", "b")))
    if name == "hands":
        return str(await run.hand_off("desk", why="it is hard"))
    if name == "raises":
        await pay(7)
        raise ValueError("broken")
    await mail(name)
    return "sent"
"""


@dataclass(frozen=True)
class Case:
    """A run that was begun, and the command about it; `after` is what is done before the command."""

    run: str
    command: tuple[str, ...]
    status: int = 0


CASES = {
    "undo": Case("paid", ("undo", "paid", "--by", "anna")),
    "resume": Case("paid", ("resume", "paid")),
    "resume what raised": Case("raises", ("resume", "raises"), 1),
    "cancel what waits": Case("asks", ("cancel", "asks", "--why", "late", "--by", "anna")),
    "cancel what raised": Case("raises", ("cancel", "raises", "--why", "late", "--by", "anna")),
    "resolve happened": Case(
        "lost", ("resolve", "lost/mail#1", "--happened", "--evidence", "it is there", "--by", "anna")
    ),
    "answer a question": Case("asks", ("answer", "asks/ask#1", "b", "--by", "anna")),
    "answer no": Case("gated", ("answer", "gated/pay#1", "no", "--by", "anna")),
    "answer yes": Case("gated", ("answer", "gated/pay#1", "yes", "--shown", "SHOWN", "--by", "anna")),
    "take over a hand-off": Case("hands", ("take-over", "hands/hand_off#1", "--why", "mine", "--by", "anna")),
    "take over what raised": Case("raises", ("take-over", "raises", "--why", "mine", "--by", "anna")),
    "standing": Case("paid", ("standing", "add", "--tool", "pay", "--until", "7d", "--times", "3", "--by", "anna")),
}


def last_line(said: str) -> str:
    """The closing sentence, without what differs from one journal to the next: identities, times, durations."""
    line = said.strip().splitlines()[-1] if said.strip() else ""
    return re.sub(r"[0-9a-f]{8,}|\d+[:.]\d+\S*|\d+ ?ms|holdfast resume \S+", "*", line)


def begun(lab: Lab, case: Case) -> tuple[str, ...]:
    """The run is begun in a journal of its own; the command about it."""
    lab.write("desk.py", DESK)
    said = lab("run", "desk.py:desk", f'"{case.run}"')
    assert said.status == {"paid": 0, "raises": 1}.get(case.run, 3), said.err
    if "SHOWN" not in case.command:
        return case.command
    shown = lab("inbox", "--item", f"{case.run}/pay#1", "--json").json["digest"]
    return tuple(shown if word == "SHOWN" else word for word in case.command)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lab]:
    def make(name: str) -> Lab:
        directory = tmp_path / name
        directory.mkdir()
        for module in [
            one for one, held in sys.modules.items() if str(getattr(held, "__file__", "")).startswith(str(tmp_path))
        ]:
            del sys.modules[module]
        monkeypatch.chdir(directory)
        return Lab(directory, {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})

    return make


@pytest.mark.parametrize("name", CASES)
def test_a_command_that_was_killed_is_given_again_and_ends_alike(fresh: Callable[[str], Lab], name: str):
    case = CASES[name]
    calm = fresh("calm")
    expected = calm(*begun(calm, case))
    assert expected.status == case.status, expected.err
    number = 1
    while True:
        lab = fresh(f"after-{number}")
        command = begun(lab, case)
        if _killed(lab, number, command) != -9:
            break
        again = lab(*command)
        assert (again.status, last_line(again.out or again.err)) == (
            case.status, last_line(expected.out or expected.err),
        ), (number, again.out, again.err)  # fmt: skip
        number += 1
    assert number > 1, "the command writes something, so it can die of it"


def _killed(lab: Lab, number: int, command: tuple[str, ...]) -> int:
    arguments = [sys.executable, "-P", "-c", DIES, str(number), *command]
    ended = subprocess.run(
        arguments, cwd=lab.directory, env=lab.surroundings({}), capture_output=True, stdin=subprocess.DEVNULL,
        timeout=60, check=False,
    )  # fmt: skip
    return ended.returncode
