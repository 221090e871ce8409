"""Every command that is printed works where it is printed: same directory, nothing set, nothing added."""

import re
import shutil
import subprocess
import sys

import pytest

from holdfast.cli.main import COMMANDS
from tests.cli.lab import Lab, Said

# A program as people write it: started with python, its journal under a name of its own, in another directory.
PROGRAM = """
import sys
from holdfast import Holdfast, Key, Run, agent, current_operation, tool


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
    with Holdfast("data/desk.db", agents=[desk]) as app:
        print(app.run(desk, sys.argv[1]))
"""
GUARDS = {"guarded": 'if __name__ == "__main__":', "unguarded": "if True:"}
TICKETS = ("fine", "gate", "mail", "ask", "event", "error")
LOOKS = ("ps", "inbox", "pending", "show {run}", "verify", "doctor")
COMMAND = re.compile(r"(?:holdfast|python) [^\n;`()]*?(?=$|\n|;|`|, then | \(|\)|  |, or|\. |\.$)", re.MULTILINE)
SHOWN = re.compile(r"\b[0-9a-f]{12,}\b")  # the digest of what was shown; a new journal has another one
INBOX = ("holdfast", "--journal", "data/desk.db", "inbox")
PLACEHOLDERS = {
    "NAME": "anna", "TEXT": "checked", "JSON": "null", "VALUE": "LGA", "PATH": "data/desk.db", "Q": "travel",
}  # fmt: skip


def commands_in(text: str) -> list[list[str]]:
    """The commands that a text tells its reader to type, each alternative for itself."""
    found: list[list[str]] = []
    for match in COMMAND.finditer(text):
        words = match[0].rstrip(".").split()
        if words[0] == "holdfast" and not COMMANDS.keys() & set(words):
            continue
        stem, *others = re.sub(r" \[[^\]]*\]", "", " ".join(words)).split(" | ")
        choices = [stem.split()[-1], *(one.split()[0] for one in others if not one.startswith("holdfast "))]
        shared = others[len(choices) - 2].split()[1:] if len(choices) > 1 else []
        found += [[*stem.split()[:-1], choice, *shared] for choice in choices]
        found += [one.split() for one in others if one.startswith("holdfast ")]
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
    if words[0] == "holdfast":
        return lab(*words[1:], *(["--once"] if "worker" in words else []))
    ended = subprocess.run(
        [sys.executable, *words[1:]], cwd=lab.directory, env=lab.surroundings({}), capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    return Said(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    ("ticket", "guard"), [*((ticket, "guarded") for ticket in TICKETS), ("gate", "unguarded"), ("error", "unguarded")]
)
def test_what_is_printed_can_be_typed(holdfast: Lab, ticket: str, guard: str):
    said = started(holdfast, ticket, guard)
    printed = {"the program": said.out + said.err.splitlines()[-1] if said.err else said.out}
    for look in LOOKS:
        words = ["holdfast", "--journal", "data/desk.db", *look.format(run=f"ticket-{ticket}").split()]
        said = typed(holdfast, words)
        assert said.status in {0, 3}, (words, said.err)
        printed[" ".join(words)] = said.out + said.err
    found = {tuple(words): where for where, text in printed.items() for words in commands_in(text)}
    assert ticket == "fine" or found, printed
    refused: list[str] = []
    for words, where in found.items():
        started(holdfast, ticket, guard)
        shown = SHOWN.search(typed(holdfast, list(INBOX)).out)
        again = [shown[0] if shown and SHOWN.fullmatch(word) else word for word in words]
        said = typed(holdfast, again)
        if said.status == 2:
            refused.append(f"{' '.join(words)}\n  printed by: {where}\n  {said.err.strip()}")
    assert not refused, "\n".join(refused)


ASKING = """
from holdfast import Run, agent


@agent(run_id="{name}")
async def child(run: Run, name: str) -> str:
    return await run.ask("which airport (Paris)?")


@agent(run_id="{name}")
async def parent(run: Run, name: str) -> str:
    return await run.join(await run.start(child, name))
"""


def test_each_command_of_a_timeline_names_the_journal(holdfast: Lab):
    holdfast.write("family.py", ASKING)
    journal = ("--journal", "data.db")
    assert holdfast("submit", "family.py:parent", '"ann"', *journal).status == 0
    assert holdfast("worker", "family.py:parent", "family.py:child", "--once", *journal).status == 3
    holdfast.write("holdfast.db", "")  # so that the other journal is not found by itself
    child = "ann~child.1"
    answer = f"holdfast --journal data.db answer {child}/ask#1 VALUE --by NAME"
    said = holdfast(*journal, "show", child, COLUMNS="120")
    assert said.lines[-2:] == ["Next:", f"  {answer}"]
    assert said.out.count("holdfast ") == said.out.count("holdfast --journal data.db ") == 2, "also beside the question"
    said = holdfast(*journal, "show", "ann", COLUMNS="120")
    assert f"  {child}  child  suspended: run {child} asks: which airport (Paris)? (a text)" in said.lines
    assert "holdfast answer" not in holdfast(*journal, "ps", "--children").out
