"""A command that was killed anywhere is given again, and ends as if it had not been: same status, same last line."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked
from tests.cli.lab import Lab
from tests.draws import daily

# Dies by a real SIGKILL after its nth write to the journal.
DIES = """
import os, signal, sys
from beforehand.cli.main import main
from beforehand.journal.port import Post, Posts, Write
from beforehand.journal.sqlite.journal import SqliteJournal

left = int(sys.argv[1])


def dying(name):
    write = getattr(SqliteJournal, name)

    async def body(*args, **kwargs):
        global left
        left -= isinstance(args[1], (Write, Post, Posts))
        done = await write(*args, **kwargs)
        if left == 0 and isinstance(args[1], (Write, Post, Posts)):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(SqliteJournal, name, body)


dying("commit")
main(sys.argv[2:])
"""
DESK = """
from datetime import timedelta
from pathlib import Path

from beforehand import Deferred, Key, Natural, Operation, Rejected, Run, agent, current_operation, tool

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


@tool
async def book(seat: str) -> str:
    if seat == "lost":
        raise TimeoutError("no answer")
    return seat


@book.compensate(restores=True)
@tool(idempotency=Key.forever(stores="all"))
async def release(operation: Operation[str], seat: str) -> None:
    assert current_operation().key
    if seat == "stuck":
        raise Rejected("the seat cannot be released")


@tool(idempotency=Key.forever())
async def order(name: str) -> str:
    assert current_operation().key
    raise Deferred("accepted", within=timedelta(hours=24), key=name)


@agent(run_id="{name}", tools=[pay, mail, book, order])
async def desk(run: Run, name: str) -> str:
    if name in {"trip", "parked"}:
        async with run.transaction("seats"):
            await pay(5)
            await book("stuck" if name == "parked" else "lost")
            raise ValueError("sold out")
    if name == "ordered":
        return await order("P-1")
    if name == "paid":
        return await pay(5)
    if name in {"gated", "other"}:
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
    """A run that was begun, and the command about it; `before` are the commands that were given in between."""

    run: str
    command: tuple[str, ...]
    status: int = 0
    before: tuple[tuple[str, ...], ...] = ()
    over: str = "-"  # what it says where the killed one has done all of it, and names no item


OTHER = ("run", "desk.py:desk", '"other"')
BOUNCED = (
    ("deliver", "P-1", "--id", "m1", "--result", '"R-1"'),
    ("resume", "ordered"),
    ("deliver", "P-1", "--id", "m2", "--status", "failed", "--why", "bounced"),
)
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
    "answer edit": Case(
        "gated", ("answer", "gated/pay#1", "--edit", '{"cents": 400}', "--why", "less", "--by", "anna")
    ),
    "answer stand-in": Case("gated", ("answer", "gated/pay#1", "--stand-in", '"by hand"', "--by", "anna")),
    "answer several": Case(
        "gated", ("answer", "gated/pay#1", "other/pay#1", "no", "--sure", "--by", "anna"), 0, (OTHER,)
    ),
    "answer several stand-ins": Case(
        "gated", ("answer", "gated/pay#1", "other/pay#1", "--stand-in", '"x"', "--sure", "--by", "anna"), 0, (OTHER,)
    ),
    "answer all": Case(
        "gated",
        ("answer", "--all", "no", "--sure", "--by", "anna"),
        0,
        (OTHER,),
        "No approval is waiting.",
    ),
    "abort a transaction": Case("trip", ("transaction", "trip/seats", "--abort", "--why", "late", "--by", "anna")),
    "retry a transaction": Case("parked", ("transaction", "parked/seats", "--retry", "--by", "anna")),
    "accept a transaction": Case(
        "parked", ("transaction", "parked/seats", "--accept", "--why", "so be it", "--by", "anna")
    ),
    "answer a transaction": Case("parked", ("answer", "parked/seats", "accept", "--by", "anna")),
    "resolve compensate": Case(
        "trip",
        ("resolve", "trip/seats/book#1", "--compensate", "--result", '"A4"', "--evidence", "it is", "--by", "anna"),
    ),
    "resolve abandon": Case("lost", ("resolve", "lost/mail#1", "--abandon", "--evidence", "old", "--by", "anna")),
    "answer abandon": Case("lost", ("answer", "lost/mail#1", "abandon", "--why", "old", "--by", "anna")),
    "resolve retry": Case("lost", ("resolve", "lost/mail#1", "--did-not-happen", "--retry", "--by", "anna")),
    "resolve contradicted": Case(
        "ordered", ("resolve", "ordered/order#1", "--happened", "--evidence", "it is there", "--by", "anna"), 0, BOUNCED
    ),
    "standing revoke": Case(
        "paid",
        ("standing", "revoke", "PERMISSION", "--why", "enough", "--by", "anna"),
        0,
        (("standing", "add", "--tool", "pay", "--until", "7d", "--by", "anna"),),
    ),
    "standing": Case("paid", ("standing", "add", "--tool", "pay", "--until", "7d", "--times", "3", "--by", "anna")),
}


def last_line(said: str) -> str:
    """The closing sentence, without what differs from one journal to the next: identities, times, durations."""
    line = said.strip().splitlines()[-1] if said.strip() else ""
    return re.sub(r"[0-9a-f]{8,}|\d+[:.]\d+\S*|\d+ ?ms|beforehand resume \S+|\bs-\w+", "*", line)


def begun(lab: Lab, case: Case) -> tuple[str, ...]:
    """The run is begun in a journal of its own; the command about it."""
    lab.write("desk.py", DESK)
    said = lab("run", "desk.py:desk", f'"{case.run}"')
    assert said.status == {"paid": 0, "raises": 1}.get(case.run, 3), said.err
    for words in case.before:
        assert lab(*words).status in {0, 3}, words
    found = dict[str, str]()
    if "SHOWN" in case.command:
        found["SHOWN"] = lab("inbox", "--item", f"{case.run}/pay#1", "--json").json["digest"]
    if "PERMISSION" in case.command:
        found["PERMISSION"] = lab("standing", "list", "--json").json[0]["standing"]["id"]
    return tuple(found.get(word, word) for word in case.command)


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


@pytest.mark.deeper
@pytest.mark.parametrize("name", daily(CASES, 8))
def test_a_command_that_was_killed_is_given_again_and_ends_alike(fresh: Callable[[str], Lab], deep: bool, name: str):
    """After its first write; in `make deep` after each of them."""
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
        ends = {last_line(expected.out or expected.err), case.over}
        assert again.status == case.status, (number, again.out, again.err)
        assert last_line(again.out or again.err) in ends, (number, again.out, again.err)
        number += 1
        if not deep:
            break
    assert number > 1, "the command writes something, so it can die of it"


def _killed(lab: Lab, number: int, command: tuple[str, ...]) -> int:
    words = ["-P", "-c", DIES, str(number), *command]
    return forked.run(words, cwd=lab.directory, env=lab.surroundings({})).returncode
