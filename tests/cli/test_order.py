"""`resolve`, `signal`, `cancel`, `pause` and `unpause`: a person decides, without the agent's code."""

import re
import shlex

import pytest

from tests.cli.lab import Lab

OPERATION = "ticket-1/restock#1"


def test_happened_lets_the_run_go_on_with_the_effect_counted(asking: Lab):
    (asking.directory / "desk.py").rename(asking.directory / "away.py")
    said = asking("resolve", OPERATION, "--happened", "--evidence", "saw it")
    assert (said.status, said.lines) == (
        0,
        [f"{OPERATION} is now succeeded, decided by anna.", "Next: beforehand resume ticket-1"],
    )
    (asking.directory / "away.py").rename(asking.directory / "desk.py")
    assert asking("resume", "ticket-1").out == '"r-1"\n'
    assert asking.world.count("restock lost") == 1


def test_the_result_of_what_happened_reaches_the_agent(beforehand: Lab):
    target = beforehand.change("@tool(idempotency=Key(ttl=timedelta(hours=24)))\n", "@tool\n")
    assert beforehand.apart("run", target, beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("run", target, beforehand.ticket("1")).status == 3
    assert beforehand("resolve", "ticket-1/refund#1", "--happened", "--result", '"r-from-the-bank"').status == 0
    assert beforehand("resume", "ticket-1").out == '"r-from-the-bank"\n'
    assert len([line for line in beforehand.world if line.startswith("refund")]) == 1


def test_a_result_that_does_not_fit_is_refused_where_the_code_is_found(beforehand: Lab):
    target = beforehand.change("@tool(idempotency=Key(ttl=timedelta(hours=24)))\n", "@tool\n")
    assert beforehand.apart("run", target, beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("run", target, beforehand.ticket("1")).status == 3
    assert "--happened --result JSON --evidence TEXT" in beforehand("why", "ticket-1/refund#1").out
    said = beforehand("resolve", "ticket-1/refund#1", "--happened", "--result", "17")
    assert said.status == 2
    assert "17 is not what refund returns" in said.remarks
    assert "expected str" in said.remarks
    assert beforehand("why", "ticket-1/refund#1", "--json").json["phase"] == "unknown"
    assert (
        "run ticket-9 is not in this journal"
        in beforehand("resolve", "ticket-9/refund#1", "--happened", "--result", "1").err
    )


def test_a_result_that_nobody_can_check_here_is_checked_when_the_run_goes_on(beforehand: Lab):
    target = beforehand.change("@tool(idempotency=Key(ttl=timedelta(hours=24)))\n", "@tool\n")
    assert beforehand.apart("run", target, beforehand.ticket("1"), DIE_AFTER="refund").status == -9
    assert beforehand("run", target, beforehand.ticket("1")).status == 3
    (beforehand.directory / "changed.py").rename(beforehand.directory / "away.py")
    said = beforehand("resolve", "ticket-1/refund#1", "--happened", "--result", "17")
    assert said.lines == [
        "Recorded. It is checked and applied where the code of refund is.", "Next: beforehand resume ticket-1",
    ]  # fmt: skip
    (beforehand.directory / "away.py").rename(beforehand.directory / "changed.py")
    resumed = beforehand("resume", "ticket-1")
    assert resumed.status == 3
    assert "refused: 17 is not what refund returns; expected str" in resumed.remarks
    assert "17 is not what refund returns" in beforehand("show", "ticket-1").words
    assert beforehand("resolve", "ticket-1/refund#1", "--happened", "--result", '"r-2"').status == 0
    assert beforehand("resume", "ticket-1").out == '"r-2"\n'


@pytest.mark.parametrize("flags", [[], ["--give-up"]])
def test_did_not_happen_gives_it_up(asking: Lab, flags: list[str]):
    said = asking("resolve", OPERATION, "--did-not-happen", *flags, "--by", "bea", "--json")
    assert said.json == {
        "run": "ticket-1", "operation": OPERATION, "phase": "failed", "applied": True,
        "note": f"{OPERATION} is now failed, decided by bea.", "next_step": "beforehand resume ticket-1",
    }  # fmt: skip
    resumed = asking("resume", "ticket-1")
    assert resumed.status == 1
    assert "bea says that it did not happen" in resumed.err


@pytest.mark.parametrize(
    "typed",
    [
        ("resolve", OPERATION, "--did-not-happen", "--retry", "--by", "bea"),
        ("answer", OPERATION, "retry", "--by", "bea"),
        ("answer", OPERATION, "ticket-2/restock#1", "retry", "--sure", "--by", "bea"),
    ],
    ids=["resolve", "answer", "several"],
)
def test_an_order_that_is_typed_twice_sends_once(asking: Lab, typed: tuple[str, ...]):
    asking("run", "desk.py:desk", asking.ticket("2", mode="lost"))
    assert asking(*typed).status == 0
    for run in ("ticket-1", "ticket-2"):
        assert asking("resume", run).status == 3
    sent = asking.world.count("restock lost")
    assert sent == (4 if "--sure" in typed else 3)
    again = asking(*typed)
    assert again.status == 2
    assert ("as a second order does" if "--sure" in typed else "does not say what was shown") in again.err
    asking("resume", "ticket-1")
    assert asking.world.count("restock lost") == sent
    (listed,) = [one["answers"] for one in asking("inbox", "--json").json if one["item"] == OPERATION]
    for printed in (asking("inbox", "--item", OPERATION).out, asking("why", OPERATION).out, "\n".join(listed)):
        (command,) = [line for line in printed.splitlines() if "--retry" in line]
        assert "--evidence TEXT --shown " in command
    words = shlex.split(command.replace("TEXT", "looked").replace("NAME", "bea"))[1:]
    assert asking(*words).status == 0


def test_why_does_not_call_proven_what_a_person_said(asking: Lab):
    asking("resolve", OPERATION, "--did-not-happen", "--by", "bea", "--evidence", "the shelf is empty")
    landed = asking("why", OPERATION, "--json").json["landed"]
    assert landed == {"answer": "no", "because": "bea said so: the shelf is empty"}


def test_retry_sends_it_once_more(asking: Lab):
    assert asking("resolve", OPERATION, "--did-not-happen", "--retry").status == 0
    assert asking("resume", "ticket-1").status == 3, "the answer was lost again: the person is asked again"
    assert asking.world.count("restock lost") == 2
    assert asking("resolve", OPERATION, "--happened").status == 2, "the question changed: it was sent again since"
    assert asking("resolve", OPERATION, "--happened", *asking.seen(OPERATION)).status == 0
    assert asking("resume", "ticket-1").status == 0


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ([], "say whether it happened"),
        (["--happened", "--did-not-happen"], "say whether it happened"),
        (["--happened", "--retry"], "--happened excludes --retry and --give-up"),
        (["--did-not-happen", "--retry", "--give-up"], "exclude each other"),
        (["--did-not-happen", "--result", "1"], "--result needs --happened"),
        (["--happened", "--result", "oops"], "'oops' is not JSON"),
    ],
)
def test_words_that_contradict_each_other_change_nothing(asking: Lab, flags: list[str], problem: str):
    said = asking("resolve", OPERATION, *flags)
    assert said.status == 2
    assert problem in said.err
    assert asking("why", OPERATION, "--json").json["phase"] == "unknown"


def test_a_word_is_final(asking: Lab):
    asking("resolve", OPERATION, "--happened", "--by", "bea")
    said = asking("resolve", OPERATION, "--did-not-happen")
    assert said.status == 2
    assert "is succeeded (person(bea)" in said.err
    assert f"Next: beforehand why {OPERATION}" in said.err


def test_what_is_proven_is_not_a_matter_of_opinion(asking: Lab):
    said = asking("resolve", "ticket-1/refund#1", "--did-not-happen")
    assert said.status == 2
    assert "only one that waits for a person can be resolved" in said.err


def test_an_event_may_come_before_it_is_waited_for(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2", mode="boom")).status == 1
    beforehand.write("desk.py", (beforehand.directory / "desk.py").read_text().replace("boom", "wait"))
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait")).status == 3
    said = beforehand("signal", "ticket-1", "approved", "--key", "boss", "--payload", '{"ok": true}')
    assert said.lines == ["The event approved is recorded for ticket-1.", "Next: beforehand resume ticket-1"]
    assert beforehand("resume", "ticket-1").out == "\"r-1{'ok': True}\"\n"
    assert "approved boss came from anna" in beforehand("show", "ticket-1").words


def test_an_event_that_nothing_waits_for_is_kept_and_not_announced_as_heard(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait")).status == 3
    said = beforehand("signal", "ticket-1", "approved")
    assert said.lines == [
        "The event approved is recorded for ticket-1. The run does not wait for it now; the event is kept.",
        "Next: beforehand pending",
    ]


def make_undoable(lab: Lab) -> None:
    """Both tools of the desk have a compensation."""
    desk = (lab.directory / "desk.py").read_text(encoding="utf-8")
    charge = (
        "@refund.compensate\nasync def charge(operation: Operation[str], order: str, cents: int) -> None: ...\n\n\n"
    )
    assert "@tool\ndef restock" in desk
    desk = desk.replace("@tool\ndef restock", charge + "@tool\ndef restock")
    unstock = "@restock.compensate\nasync def unstock(operation: Operation[None], sku: str) -> None: ...\n\n\n"
    desk = desk.replace('@agent(run_id="ticket', unstock + '@agent(run_id="ticket')
    lab.write("desk.py", "from beforehand import Operation\n" + desk)


@pytest.mark.parametrize(
    "order",
    [("signal", "ticket-1", "approved"), ("unpause", "ticket-1"), ("pause", "ticket-1"), ("cancel", "ticket-1")],
    ids=" ".join,
)
@pytest.mark.parametrize("status", ["completed", "undone"])
def test_a_run_that_is_over_takes_no_orders(beforehand: Lab, status: str, order: tuple[str, ...]):
    make_undoable(beforehand)
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    if status == "undone":
        assert beforehand("undo", "ticket-1").status == 0
    said = beforehand(*order)
    assert said.status == 2
    assert f"UsageError: run ticket-1 {STATUS[status]} and takes no commands" in said.err
    assert beforehand("ps", "--json").json["runs"][0]["status"] == status


STATUS = {"completed": "has completed", "undone": "is undone"}


def test_an_event_with_a_name_is_given_once(asking: Lab):
    first = asking("signal", "ticket-1", "approved", "--once", "mail-7", "--json")
    again = asking("signal", "ticket-1", "approved", "--once", "mail-7", "--json")
    assert (first.json["fresh"], again.json["fresh"]) == (True, False)


def test_a_cancelled_run_sends_nothing_more(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"))
    assert beforehand("cancel", "ticket-1", "--why", "asked twice").status == 0
    beforehand("signal", "ticket-1", "approved", "--key", "boss")
    said = beforehand("worker", "desk.py:desk", "--once")
    assert said.status == 1
    listed = beforehand("ps", "--json").json["runs"][0]
    assert (listed["status"], listed["reason"]) == ("stopped", "cancelled: asked twice")
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait")).status == 1
    assert beforehand("ps", "--json").json["runs"][0]["reason"] == "cancelled: asked twice", (
        "asking again changes nothing"
    )


def test_nobody_who_cancels_is_told_to_resume(beforehand: Lab):
    """Once a worker has ended the run, `resume` would open it again and send what was called off."""
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"))
    said = beforehand("cancel", "ticket-1")
    assert said.lines == ["ticket-1 is cancelled: nothing more is sent.", "Next: beforehand show ticket-1"]
    assert beforehand("worker", "desk.py:desk", "--once").status == 1
    assert "only if it is to continue after all: beforehand resume ticket-1" in beforehand("show", "ticket-1").words
    again = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"))
    assert "Known: its outcomes are kept; nothing more is sent" in again.err
    assert "after a fix" not in again.err


def test_a_run_that_stopped_by_an_error_is_called_off_and_one_that_was_taken_over_is_not(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom")).status == 1
    for _ in range(2):
        said = beforehand("cancel", "ticket-1", "--why", "asked twice")
        assert said.lines == ["ticket-1 is cancelled: nothing more is sent.", "Next: beforehand show ticket-1"]
    assert beforehand("inbox", "--json").json == []
    assert "stopped" in beforehand("ps").out
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2", mode="boom")).status == 1
    assert beforehand("take-over", "ticket-2").status == 0
    assert beforehand("cancel", "ticket-2").lines[0] == ("ticket-2 had stopped: nothing is sent until it is resumed.")


def test_a_run_that_stopped_by_an_error_is_in_the_inbox_and_shows_where(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="boom")).status == 1
    (item,) = beforehand("inbox", "--json").json
    assert item["answers"][1:] == [
        "beforehand resume ticket-1",
        "beforehand take-over ticket-1 --by NAME",
        "beforehand cancel ticket-1",
    ]
    line = 'in desk: raise ValueError("boom")'
    assert line in beforehand("show", "ticket-1").words
    assert line in beforehand("inbox", "--item", "ticket-1").words
    assert "desk.py" in beforehand("show", "ticket-1").out


def test_nobody_who_abandons_an_operation_is_told_to_resume(asking: Lab):
    assert asking("resolve", OPERATION, "--abandon").lines[-1] == "Next: beforehand show ticket-1"


def test_what_is_undone_does_not_go_on(beforehand: Lab):
    make_undoable(beforehand)
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    beforehand("undo", "ticket-1")
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    assert said.status == 1
    assert "what could be undone is undone; the run does not continue" in said.err
    assert "resume" not in said.err


def test_what_a_run_waits_for_is_said_once(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"), "--json")
    waits = "run ticket-1 waits for approved boss"
    assert said.json["problem"]["message"] == waits


def test_a_paused_run_rests_until_it_is_unpaused(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="wait"))
    beforehand("pause", "ticket-1", "--by", "bea")
    beforehand("signal", "ticket-1", "approved", "--key", "boss")
    paused = beforehand("resume", "ticket-1")
    assert paused.status == 3
    assert "paused by bea: beforehand unpause ticket-1" in paused.err
    assert beforehand("unpause", "ticket-1").lines[-1] == "Next: beforehand resume ticket-1"
    assert beforehand("resume", "ticket-1").status == 0


def test_nothing_goes_out_through_a_paused_tool(beforehand: Lab):
    beforehand("run", "desk.py:desk", beforehand.ticket("1"))
    said = beforehand("pause", "--tool", "restock", "--why", "the shelf is on fire")
    assert said.lines == [
        "No run sends through restock until it is unpaused.",
        "Next: beforehand unpause --tool restock",
    ]
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2")).status == 3
    assert beforehand("why", "ticket-2/restock#1").status == 2, "it was not even begun"
    assert beforehand("doctor", "--json").json["journal"]["paused_tools"] == {"restock": "the shelf is on fire"}
    assert beforehand.world.count("restock mug") == 1
    beforehand("unpause", "--tool", "restock")
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2")).status == 0
    assert beforehand.world.count("restock mug") == 2


def test_a_tool_that_nobody_used_is_paused_with_a_question(asking: Lab):
    said = asking("pause", "--tool", "restok")
    assert said.status == 0
    assert "No run in this journal has used a tool named restok so far. Check the name." in said.err
    assert asking("pause", "--tool", "stock").err == ""


@pytest.mark.parametrize("command", ["pause", "unpause"])
@pytest.mark.parametrize("arguments", [[], ["ticket-1", "--tool", "restock"]])
def test_a_pause_is_of_one_thing(asking: Lab, command: str, arguments: list[str]):
    said = asking(command, *arguments)
    assert said.status == 2
    assert "name a run, or a tool with --tool" in said.err


@pytest.mark.parametrize(
    "arguments", [("signal", "nobody", "x"), ("cancel", "nobody"), ("pause", "nobody")], ids=" ".join
)
def test_an_order_to_an_unknown_run(asking: Lab, arguments: tuple[str, ...]):
    said = asking(*arguments)
    assert said.status == 2
    assert "run nobody is not in this journal" in said.err


@pytest.mark.parametrize("name", ["", " ", "\u3164", "\x01"])
def test_a_command_takes_no_name_that_shows_nothing(asking: Lab, name: str):
    for words in (
        ("undo", "ticket-1"), ("cancel", "ticket-1"), ("pause", "ticket-1"), ("signal", "ticket-1", "news"),
        ("deliver", "K-1", "--id", "m1"), ("answer", OPERATION, "give-up"), ("resume", "ticket-1"),
    ):  # fmt: skip
        said = asking(*words, "--by", name)
        assert (said.status, "a command needs the name of a person" in said.err) == (2, True), words
    assert [one["item"] for one in asking("inbox", "--json").json] == [OPERATION]


ALIKE = """
from beforehand import Ambiguous, Run, agent, tool


@tool
async def pay(cents: int) -> str:
    raise Ambiguous("closed")


@agent(run_id="pays-{name}", tools=[pay])
async def desk(run: Run, name: str) -> str:
    return str(await run.gather(pay.outcome(5), pay.outcome(5)))
"""


def test_a_count_of_several_is_given_under_the_digest_of_what_was_read(beforehand: Lab):
    beforehand.write("pays.py", ALIKE)
    for name in ("1", "2"):
        assert beforehand("run", "pays.py:desk", f'"{name}"').status == 3
    both = ("answer", "pays-1/~1/pay#1", "pays-2/~1/pay#1", "did-not-happen", "--sent", "1", "--result", '"paid"')
    refused = beforehand(*both, "--sure")
    assert (refused.status, "needs --shown" in refused.err) == (2, True)
    assert len(beforehand("inbox", "--json").json) == 4
    (shown,) = re.findall(r"--shown (\w+)", refused.err)
    assert beforehand(*both, "--shown", shown).status == 0
