"""`pause --all`, `unpause --all` and `resume --all`: one switch for all sending, and what is under way when it is used."""

import re
import sqlite3

import pytest

from tests.cli.lab import Lab

SINCE = r"by anna since \d{4}-\d\d-\d\d \d\d:\d\d UTC: the bank calls"
NEXT = "Next: beforehand unpause --all"


def spaced(line: str) -> str:
    return " ".join(line.split())


def test_nothing_is_sent_while_it_lasts_and_commands_say_so(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    said = beforehand("pause", "--all", "--why", "the bank calls")
    assert (said.status, said.lines) == (
        0,
        ["No process begins another attempt until unpause --all.", "No attempt is under way.", NEXT],
    )
    asked = beforehand("run", "desk.py:desk", beforehand.ticket("2"))
    assert asked.status == 3
    assert re.search(f"paused: all sending, {SINCE}", asked.err)
    for command in (("ps",), ("show", "ticket-2")):
        assert "paused: all sending, by anna" in beforehand(*command).words
    assert re.search(f"! paused: all sending, {SINCE} beforehand unpause --all", beforehand("top", "--once").words)
    assert re.search(f"paused +all sending, {SINCE}", beforehand("doctor").words)
    assert list(beforehand("doctor", "--json").json["journal"]["paused_tools"]) == ["*"]
    assert [line for line in beforehand.world if line.startswith("refund 2")] == []

    assert beforehand("unpause", "--all").lines == ["All runs send again.", "Next: beforehand worker"]
    assert beforehand("worker", "desk.py:desk", "--once").status == 0
    assert beforehand("ps", "--status", "completed", "--json").json["runs"][0]["run"] == "ticket-2"


def test_what_a_killed_process_had_begun_is_listed_until_it_is_known(beforehand: Lab):
    assert beforehand.apart("run", "desk.py:desk", beforehand.ticket("1"), DIE_AFTER="restock").status == -9
    said = beforehand("pause", "--all")
    assert said.lines[1] == "1 attempt begun before, whose effect may still happen:"
    assert re.fullmatch(r"… ticket-1/restock#1 restock begun (now|\S+ s ago)", spaced(said.lines[2])), said.lines[2]
    again = beforehand("pause", "--all", "--by", "ben", "--json").json
    assert (again["changed"], again["paused"]["by"], again["unreadable"]) == (False, "anna", [])
    (listed,) = again["open"]
    assert listed.pop("since_ms") <= again["paused"]["at_ms"]
    assert listed == {"run": "ticket-1", "operation": "ticket-1/restock#1", "tool": "restock", "attempt": 1}
    assert again["next_step"] == "beforehand unpause --all"

    why = beforehand("resume", "ticket-1")  # what happened is found out, and a person is asked
    assert why.status == 3
    assert beforehand("resolve", "ticket-1/restock#1", "--did-not-happen", "--retry").status == 0
    assert beforehand("pause", "--all").lines[1:] == ["No attempt is under way.", NEXT]
    assert "beforehand unpause --all" in beforehand("why", "ticket-1/restock#1").out
    assert "paused: all sending, by anna" in beforehand("why", "ticket-1/restock#1").words
    assert beforehand.world.count("restock mug") == 1


def test_a_command_that_changes_nothing_says_since_when_and_by_whom(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    for word in ("unpause", "resume"):
        said = beforehand(word, "--all")
        assert (said.status, said.lines[0]) == (0, "Nothing was changed: sending is not paused.")
    beforehand("pause", "--all", "--why", "the bank calls")
    said = beforehand("pause", "--all", "--by", "ben")
    assert said.status == 0
    assert re.fullmatch(f"Nothing was changed: all sending is paused {SINCE}.", said.lines[0])
    assert beforehand("resume", "--all").lines == ["All runs send again.", "Next: beforehand worker"]
    assert beforehand("unpause", "--all", "--json").json == {
        "paused": None, "changed": False, "open": [], "unreadable": [], "next_step": "beforehand worker",
    }  # fmt: skip


@pytest.mark.parametrize("rest", [["ticket-1"], ["--tool", "restock"]], ids=" ".join)
@pytest.mark.parametrize("command", ["pause", "unpause", "resume"])
def test_everything_is_named_alone(asking: Lab, command: str, rest: list[str]):
    said = asking(command, "--all", *rest)
    assert said.status == 2
    assert "name a run, or" in said.err or "No such option" in said.err


def test_resume_without_a_run_names_no_run(asking: Lab):
    assert asking("resume").status == 2
    assert asking("resume", "--all", "--agent", "desk.py:desk").status == 2


def test_a_run_that_cannot_be_read_is_named_and_sending_is_paused(asking: Lab):
    shell = sqlite3.connect(asking.journal)
    shell.execute("update record set content = 'x' where seq = 2")
    shell.commit()
    shell.close()
    said = asking("pause", "--all")
    assert said.status == 0
    assert said.lines[0] == "No process begins another attempt until unpause --all."
    assert "Its attempts are not known, since it cannot be read: ticket-1" in said.remarks
