"""`beforehand deliver` and `beforehand pending`, on a journal on disk."""

import asyncio
import base64
import os

import pytest

from beforehand import Beforehand
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.model.records import Raw
from tests import forked
from tests.cli.lab import Lab

HOTEL = """
from datetime import timedelta

from beforehand import Deferred, Rejected, Run, agent, tool

@tool
async def book(room: str) -> str:
    with open("asked", "a") as asked:
        asked.write(room + "\\n")
    raise Deferred("the hotel confirms", within=timedelta(hours=24), key=f"B-{room}")

@agent(run_id="stay-{room}")
async def stay(run: Run, room: str) -> str:
    try:
        return await book(room)
    except Rejected as no:
        return f"refused: {no.message}"
"""


def asked(beforehand: Lab) -> list[str]:
    return (beforehand.directory / "asked").read_text().split()


def waiting(beforehand: Lab, room: str) -> None:
    beforehand.write("hotel.py", HOTEL)
    assert beforehand("run", "hotel.py:stay", f'"{room}"').status == 3


def test_what_is_awaited_is_listed_with_its_deadline_and_settled_by_the_answer(beforehand: Lab):
    waiting(beforehand, "7")
    (awaited,) = beforehand("pending", "--json").json
    assert awaited["operation"] == "stay-7/book#1"
    assert awaited["due_ms"]
    assert "23 h 59 m  stay-7/book#1" in beforehand("pending").out.replace("24 h 00 m", "23 h 59 m")
    said = beforehand("deliver", "B-7", "--id", "m1", "--result", '"room 7"')
    assert said.lines == ["Recorded.", "Next: beforehand resume stay-7"]
    assert (
        beforehand("deliver", "B-7", "--id", "m1", "--result", '"room 7"')
        .lines[0]
        .startswith("This message was recorded before")
    )
    assert beforehand("resume", "stay-7").out == '"room 7"\n'
    assert beforehand("pending").lines == ["Nothing is awaited."]
    assert asked(beforehand) == ["7"]


def test_events_that_runs_wait_for_are_listed_as_well_those_without_a_deadline_last(beforehand: Lab):
    waiting(beforehand, "7")
    beforehand.write(
        "patient.py",
        "from datetime import timedelta\n\nfrom beforehand import Run, agent\n\n\n"
        '@agent(run_id="wait-{hours}")\nasync def wait(run: Run, hours: int) -> str:\n'
        "    within = timedelta(hours=hours) if hours else None\n"
        '    return str(await run.wait_for("news", key="k", timeout=within))\n',
    )
    for hours in ("0", "2"):
        assert beforehand("run", "patient.py:wait", hours).status == 3
    listed = beforehand("pending", "--json").json
    assert [(one["operation"], one["kind"]) for one in listed] == [
        ("wait-2/wait_for:news#1", "event"), ("stay-7/book#1", "answer"), ("wait-0/wait_for:news#1", "event"),
    ]  # fmt: skip
    assert [line.strip() for line in beforehand("pending").lines[-2:]] == [
        "-  run wait-0 waits for news k", "beforehand signal wait-0 news --key k",
    ]  # fmt: skip
    beforehand("signal", "wait-0", "news", "--key", "k")
    assert beforehand("resume", "wait-0").status == 0
    assert len(beforehand("pending", "--json").json) == 2


def test_an_answer_that_comes_first_is_kept_and_a_refusal_is_told(beforehand: Lab):
    waiting(beforehand, "7")
    early = beforehand("deliver", "B-8", "--id", "m1", "--status", "failed", "--why", "full")
    assert early.lines == ["Recorded.", "Nothing waits for B-8 yet: it is kept until something does."]
    assert beforehand("run", "hotel.py:stay", '"8"').out == '"refused: full"\n'
    assert asked(beforehand) == ["7", "8"]


def test_a_refusal_carries_no_result_and_an_id_names_one_message(beforehand: Lab):
    waiting(beforehand, "7")
    assert beforehand("deliver", "B-7", "--id", "m1", "--status", "failed", "--result", "1").status == 2
    beforehand("deliver", "B-7", "--id", "m1", "--status", "pending")
    refused = beforehand("deliver", "B-7", "--id", "m1", "--result", '"room 7"')
    assert "another message came under the id m1" in refused.err
    assert beforehand("resume", "stay-7").status == 3


MAILER = """
from datetime import timedelta

from beforehand import Run, agent, current_operation, tool

@tool
async def send(to: list[str]) -> list[str]:
    current_operation().pending("eve", within=timedelta(hours=24), key="mail-eve")
    current_operation().report("mails left today", 7)
    return [name for name in to if name != "eve"]

@agent(run_id="mail-{day}")
async def mailing(run: Run, day: str) -> list[str]:
    sent = await send.outcome(["ann", "eve"])
    ends = await run.wait_pending(sent)
    return [*sent.result, *(name for name, end in ends.items() if end.status == "succeeded")]
"""


def test_a_part_that_is_still_to_come_is_listed_shown_explained_and_settled(beforehand: Lab):
    beforehand.write("mail.py", MAILER)
    assert beforehand("run", "mail.py:mailing", '"mon"').status == 3
    (awaited,) = beforehand("pending", "--json").json
    assert awaited["operation"] == "mail-mon/send#1/part#1"
    shown = beforehand("show", "mail-mon").out
    assert "mails left today is 7" in shown
    assert "eve: awaiting: waits for its answer" in shown
    why = beforehand("why", "mail-mon/send#1/part#1").out
    assert "it is a part of send#1, and is never sent by itself" in why
    assert beforehand("deliver", "mail-eve", "--id", "m1").lines == ["Recorded.", "Next: beforehand resume mail-mon"]
    assert beforehand("resume", "mail-mon").json == ["ann", "eve"]
    assert "eve: done" in beforehand("show", "mail-mon").out
    assert beforehand("replay", "mail-mon").status == 0


DELIVERER = """
import asyncio, os, signal, sys

from beforehand import Beforehand
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.control import service
from beforehand.journal.port import Post
from beforehand.model.records import Raw

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def deliver(point):
    async with Beforehand("beforehand.db") as app:
        if point == "announced":
            first, commit = iter([True]), app.engine.journal.commit
            app.engine.journal.commit = lambda one: (
                commit(one) if not isinstance(one, Post) or next(first, False) else die()
            )
        elif point == "stored":
            service.forward = die
        else:
            service.DirectSink.apply = die
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=Raw(b'"room 7"')))

asyncio.run(deliver(sys.argv[1]))
"""


@pytest.mark.parametrize("point", ["announced", "stored", "ordered"])
def test_a_deliverer_that_is_killed_leaves_no_run_asleep(beforehand: Lab, point: str):
    waiting(beforehand, "7")
    beforehand.write("deliver.py", DELIVERER)
    dead = forked.run(["deliver.py", point], cwd=beforehand.directory)
    assert dead.returncode == -9
    worked = beforehand("worker", "hotel.py:stay", "--once")
    if point == "announced":  # nothing was stored, and so nothing acknowledged: its sender sends it again
        assert worked.out == "0 runs driven.\n"
        beforehand("deliver", "B-7", "--id", "m1", "--result", '"room 7"')
        worked = beforehand("worker", "hotel.py:stay", "--once")
    assert worked.out == "1 run driven.\n"
    assert beforehand("resume", "stay-7").out == '"room 7"\n'
    assert asked(beforehand) == ["7"]


def test_an_answer_that_does_not_fit_is_read_by_whoever_has_the_code(beforehand: Lab):
    waiting(beforehand, "7")
    said = beforehand("deliver", "B-7", "--id", "m1", "--result", "7")
    assert said.lines[0] == "Recorded."
    resumed = beforehand("resume", "stay-7")
    assert resumed.status == 3
    assert "is not what book returns; expected str" in resumed.err
    assert beforehand("resolve", "stay-7/book#1", "--happened", "--result", '"room 7"', "--by", "bea").status == 0
    assert beforehand("resume", "stay-7").out == '"room 7"\n'


def test_a_fork_inherits_how_parts_ended_and_does_not_count_them_as_writes(beforehand: Lab):
    beforehand.write("mail.py", MAILER)
    assert beforehand("run", "mail.py:mailing", '"mon"').status == 3
    beforehand("deliver", "mail-eve", "--id", "m1")
    assert beforehand("resume", "mail-mon").status == 0
    assert "part#1" not in beforehand("fork", "mail-mon", "--at", "send#1", "--as", "before").out
    assert beforehand("fork", "mail-mon", "--at", "parts#1", "--as", "after").status == 0
    assert beforehand("resume", "after").json == ["ann", "eve"]


@pytest.mark.parametrize(
    ("spelled", "says"),
    [
        ("bank=BANK", "needs a binding"),
        ("bank=BANK:tool=", "binds the sender bank to nothing"),
        ("bank=BANK:anything", "binds the sender bank to nothing"),
        ("bank=BANK:any,tool=t", "needs a binding"),
        ("=BANK:any", "cannot name a sender"),
        ("bank=NOT_THERE:any", "the variable NOT_THERE is empty"),
    ],
)
def test_a_sender_says_its_name_its_secret_and_what_it_may_answer_for(beforehand: Lab, spelled: str, says: str):
    beforehand.environment["BANK"] = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    said = beforehand("serve-hooks", "--sender", spelled)
    assert said.status == 2
    assert says in " ".join(said.err.split())


def test_a_server_with_a_certificate_that_cannot_be_used_does_not_start(beforehand: Lab):
    beforehand.environment["BANK"] = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    waiting(beforehand, "7")
    for command in (["serve"], ["serve-hooks", "--sender", "bank=BANK:any"]):
        said = beforehand(*command, "--port", "0", "--cert", "missing.pem")
        assert said.status == 2
        assert "the certificate missing.pem cannot be used" in " ".join(said.err.split())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "hooks.example.com"])
def test_deliveries_in_clear_are_not_taken_from_other_machines(beforehand: Lab, host: str):
    beforehand.environment["BANK"] = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    waiting(beforehand, "7")
    said = beforehand("serve-hooks", "--sender", "bank=BANK:any", "--host", host)
    assert said.status == 2
    assert "deliveries would cross the network in clear" in " ".join(said.err.split())
    assert "--cert FILE" in said.err


def test_a_story_names_the_sender_of_an_answer(beforehand: Lab):
    waiting(beforehand, "7")

    async def deliver() -> None:
        async with Beforehand(str(beforehand.directory / "beforehand.db"), recover=False) as app:
            arrival = ArrivedAnswer(
                "m1", result=Raw(b'"room 7"'), source="webhook hotel", sender="hotel", tools=("book",)
            )
            await app.service.deliver("B-7", arrival)

    asyncio.run(deliver())
    assert beforehand("resume", "stay-7").out == '"room 7"\n'
    assert "by webhook hotel" in beforehand("show", "stay-7").out
    assert "webhook hotel" in beforehand("why", "stay-7/book#1").out
