"""`beforehand worker` and runs that stopped while an effect of theirs was unknown."""

from tests.cli.lab import Lab

MAIL = """
import os
from datetime import timedelta
from pathlib import Path

from beforehand import Ambiguous, CannotTell, Happened, Operation, Run, Verdict, agent, tool

HERE = Path(__file__).parent


@tool
async def send(to: str) -> str:
    with (HERE / "world.txt").open("a") as world:
        world.write(f"send {to}\\n")
    os.kill(os.getpid(), 9)
    raise Ambiguous("no answer")


@send.verify(deadline=timedelta(0), every=timedelta(hours=1))
async def sent(operation: Operation[str], to: str) -> Verdict[str]:
    with (HERE / "reads.txt").open("a") as reads:
        reads.write("read\\n")
    return Happened("m-1") if (HERE / "sent.txt").exists() else CannotTell("the folder is closed")


@agent(run_id="mail-{to}")
async def clerk(run: Run, to: str) -> str:
    return await send(to)
"""


def reads(lab: Lab) -> int:
    file = lab.directory / "reads.txt"
    return len(file.read_text().splitlines()) if file.exists() else 0


def stopped(lab: Lab) -> None:
    """A run that was called off after its process had died in the middle of its only effect."""
    lab.write("mail.py", MAIL)
    assert lab.apart("run", "mail.py:clerk", '"ann"').status == -9
    assert lab("cancel", "mail-ann").status == 0
    assert lab("worker", "mail.py:clerk", "--once").status == 1


def test_a_worker_reads_back_what_a_cancelled_run_left_in_doubt(beforehand: Lab):
    stopped(beforehand)
    beforehand.write("sent.txt", "there")
    before = reads(beforehand)
    listed = beforehand("ps", "--json").json["runs"][0]
    assert (listed["status"], listed["due_ms"] is not None) == ("stopped", True)
    said = beforehand("worker", "mail.py:clerk", "--once", "--json")
    assert said.status == 0
    assert said.json["driven"] == [{"run": "mail-ann", "status": "looked at", "reason": "settled: send#1"}]
    assert beforehand("why", "mail-ann/send#1", "--json").json["phase"] == "succeeded"
    assert reads(beforehand) == before + 1
    assert beforehand("worker", "mail.py:clerk", "--once", "--json").json["driven"] == []
    assert beforehand.world == ["send ann"]


def test_a_pause_lies_between_two_looks(beforehand: Lab):
    stopped(beforehand)
    first = beforehand("worker", "mail.py:clerk", "--once", "--json").json["driven"]
    assert first == [{"run": "mail-ann", "status": "looked at", "reason": "still unknown"}]
    before = reads(beforehand)
    assert beforehand("worker", "mail.py:clerk", "--once", "--json").json["driven"] == []
    assert reads(beforehand) == before
    assert beforehand.world == ["send ann"]
