"""Every command that is printed works where it is printed: same directory, nothing set, nothing added."""

import re
import shlex
import shutil

import pytest

from beforehand.cli.main import COMMANDS
from tests import forked
from tests.cli.lab import Lab, Said

# A program as people write it: started with python, its journal under a name of its own, in another directory.
PROGRAM = """
import sys
from beforehand import Beforehand, Key, Run, agent, current_operation, tool


@tool(idempotency=Key.forever(), gate="cents > 5000")
def refund(order: str, cents: int) -> str:
    return f"R-{current_operation().key}"


@tool
def send_mail(to: str) -> None:
    raise TimeoutError("no answer")


@agent(run_id="ticket-{ticket}")
async def desk(run: Run, ticket: str) -> str:
    reference = await refund("A-1", 9000 if ticket == "gate" else 500)
    if ticket == "mail":
        await send_mail("anna@example.com")
    if ticket == "ask":
        return await run.ask("which airport?", queue="travel")
    if ticket == "event":
        await run.wait_for("approved", "boss")
    if ticket == "error":
        raise KeyError("customer")
    return reference


GUARD
    with Beforehand("data/desk.db", agents=[desk]) as app:
        print(app.run(desk, sys.argv[1]))
"""
GUARDS = {"guarded": 'if __name__ == "__main__":', "unguarded": "if True:"}
LOOKS = ("ps", "inbox", "pending", "show {run}", "verify", "doctor")
COMMAND = re.compile(r"(?:beforehand|python) [^\n`]*$", re.MULTILINE)
SHOWN = re.compile(r"\b[0-9a-f]{12,}\b")  # the digest of what was shown; a new journal has another one
INBOX = ("beforehand", "--journal", "data/desk.db", "inbox")
PLACEHOLDERS = {
    "NAME": "anna", "TEXT": "checked", "JSON": "null", "VALUE": "LGA", "PATH": "data/desk.db", "Q": "travel",
}  # fmt: skip


def commands_in(text: str) -> list[list[str]]:
    """The commands that a text tells its reader to type, one to a line."""
    found: list[list[str]] = []
    for match in COMMAND.finditer(text):
        words = shlex.split(match[0])
        if words[0] == "beforehand" and not COMMANDS.keys() & set(words):
            continue
        found.append(words)
    return [[PLACEHOLDERS.get(word, word) for word in words] for words in found]


def started(lab: Lab, ticket: str, guard: str) -> Said:
    """The program, written and started anew: what one printed command does is not in the way of the next."""
    for left in lab.directory.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    lab.write("app.py", PROGRAM.replace("GUARD", GUARDS[guard]))
    (lab.directory / "data").mkdir()
    return typed(lab, ["python", "app.py", ticket])


def typed(lab: Lab, words: list[str]) -> Said:
    """What a command says that is typed in this directory."""
    if words[0] == "beforehand":
        return lab(*words[1:], *(["--once"] if "worker" in words else []))
    ended = forked.run(words[1:], cwd=lab.directory, env=lab.surroundings({}))
    return Said(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    ("ticket", "guard"),
    [
        ("gate", "guarded"),
        ("error", "unguarded"),
        *(
            pytest.param(ticket, "guarded", marks=pytest.mark.deep)
            for ticket in ("event", "error", "fine", "mail", "ask")
        ),
        pytest.param("gate", "unguarded", marks=pytest.mark.deep),
    ],
)
def test_what_is_printed_can_be_typed(beforehand: Lab, ticket: str, guard: str):
    said = started(beforehand, ticket, guard)
    printed = {"the program": said.out + said.err.splitlines()[-1] if said.err else said.out}
    for look in LOOKS:
        words = ["beforehand", "--journal", "data/desk.db", *look.format(run=f"ticket-{ticket}").split()]
        said = typed(beforehand, words)
        assert said.status in {0, 3}, (words, said.err)
        printed[" ".join(words)] = said.out + said.err
    found = {tuple(words): where for where, text in printed.items() for words in commands_in(text)}
    assert ticket == "fine" or found, printed
    refused: list[str] = []
    for words, where in found.items():
        started(beforehand, ticket, guard)
        shown = SHOWN.search(typed(beforehand, list(INBOX)).out)
        again = [shown[0] if shown and SHOWN.fullmatch(word) else word for word in words]
        said = typed(beforehand, again)
        if said.status == 2:
            refused.append(f"{' '.join(words)}\n  printed by: {where}\n  {said.err.strip()}")
    assert not refused, "\n".join(refused)


ASKING = """
from beforehand import Run, agent


@agent(run_id="{name}")
async def child(run: Run, name: str) -> str:
    return await run.ask("which airport (Paris)?")


@agent(run_id="{name}")
async def parent(run: Run, name: str) -> str:
    return await run.join(await run.start(child, name))
"""


def test_each_command_of_a_timeline_names_the_journal(beforehand: Lab):
    beforehand.write("family.py", ASKING)
    journal = ("--journal", "data.db")
    assert beforehand("submit", "family.py:parent", '"ann"', *journal).status == 0
    assert beforehand("worker", "family.py:parent", "family.py:child", "--once", *journal).status == 3
    beforehand.write("beforehand.db", "")  # so that the other journal is not found by itself
    child = "ann~child.1"
    answer = f"beforehand --journal data.db answer {child}/ask#1 VALUE --by NAME"
    said = beforehand(*journal, "show", child, COLUMNS="120")
    assert said.lines[-2:] == ["Next:", f"  {answer}"]
    assert said.out.count("beforehand ") == said.out.count("beforehand --journal data.db ") == 2, (
        "also beside the question"
    )
    said = beforehand(*journal, "show", "ann", COLUMNS="120")
    assert f"  {child}  child  suspended: run {child} asks: which airport (Paris)? (a text)" in said.lines
    assert "beforehand answer" not in beforehand(*journal, "ps", "--children").out


def test_a_placeholder_that_is_left_in_a_command_is_refused_and_nothing_is_done(beforehand: Lab):
    said = started(beforehand, "gate", "guarded")
    shown = SHOWN.search(said.err)
    assert shown, said.err
    item, journal = "ticket-gate/refund#1", ("--journal", "data/desk.db")
    for words in (
        ("answer", item, "yes", "--shown", shown[0], "--by", "NAME"),
        ("answer", item, "no", "--why", "TEXT", "--by", "anna"),
        ("budget", "ticket-gate", "--raise", "LIMIT=AMOUNT"),
        ("budget", "ticket-gate", "--raise", "cost=AMOUNT EUR"),
    ):
        refused = beforehand(*journal, *words)
        assert (refused.status, "stands for something that you choose" in refused.err) == (2, True), words
    (waiting,) = beforehand(*journal, "inbox", "--json").json
    assert waiting["kind"] == "approval"
