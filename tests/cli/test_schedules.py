"""`beforehand schedules`: what is declared, when it fires next, and pausing it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from tests.cli.lab import Lab

FILE = """
schedules:
  far: {agent: refund_desk, input: {}, at: 2095-02-28T12:00, zone: America/New_York}
  over: {agent: refund_desk, input: {}, at: 2020-01-01}
  leap: {agent: refund_desk, input: {}, cron: 0 12 29 2 *, zone: Europe/Berlin, missed: all}
"""


@pytest.fixture
def lab(beforehand: Lab) -> Lab:
    beforehand.write("queues.yaml", FILE)
    beforehand.write("pyproject.toml", '[tool.beforehand]\nqueues = "queues.yaml"\n')
    beforehand.write(
        "desk.py",
        "from beforehand import Run, agent\n\n\n@agent(name='refund_desk')\n"
        "async def desk(run: Run, given: dict[str, str]) -> str:\n    return run.id\n",
    )
    assert beforehand("worker", "desk.py:desk", "--once").status == 0
    return beforehand


def test_schedules_are_listed_with_what_is_known(lab: Lab):
    said = lab("schedules")
    assert said.status == 0
    assert re.search(r"far +refund_desk +at 2095-02-28T12:00 America/New_York +next 2095-02-28 17:00:00 UTC", said.out)
    assert re.search(r"over +refund_desk +at 2020-01-01 UTC +fires no more +has not", said.out)
    assert "3 schedules" in said.out
    (one,) = lab("schedules", "list", "far", "--json").json["schedules"]
    assert (one["schedule"], one["declared"]["agent"], one["last"], one["due_ms"], one["paused"]) == (
        "far", "refund_desk", None, None, "",
    )  # fmt: skip


def test_the_next_firings_are_listed_in_their_order(lab: Lab):
    found = lab("schedules", "--next", "30", "--json").json["next"]
    leap = [one for one in found if one["schedule"] == "leap"]
    assert [one["moment_ms"] for one in found] == sorted(one["moment_ms"] for one in found)
    assert all(re.fullmatch(r"leap@20\d\d-02-29T11:00:00Z", one["run"]) for one in leap[:5])
    assert "far@2095-02-28T17:00:00Z" in [one["run"] for one in found]
    shown = lab("schedules", "list", "far", "--next", "9")
    assert "2095-02-28 17:00:00 UTC  far  refund_desk  far@2095-02-28T17:00:00Z" in shown.out
    assert "1 firing" in shown.out


def test_the_trace_of_a_wrong_clock_is_listed(lab: Lab):
    with closing(sqlite3.connect(lab.directory / "beforehand.db")) as journal, journal:
        journal.execute(
            "insert into cell values ('once', 'leap', '0004107495600000', '\"leap@2100\"')"
        )  # 2100-02-28T11:00Z
    assert "leap: a clock was wrong: it has fired for 2100-02-28T11:00:00Z already" in lab("schedules").out
    (one,) = lab("schedules", "list", "leap", "--json").json["schedules"]
    assert (one["last"], one["clock"]) == (None, "a clock was wrong: it has fired for 2100-02-28T11:00:00Z already")
    assert lab("schedules", "list", "leap", "--next", "1", "--json").json["next"][0]["moment_ms"] < 4107495600000


def test_a_schedule_of_an_agent_that_does_not_exist_is_said(lab: Lab):
    lab.write("queues.yaml", FILE + "  odd: {agent: refund_dsk, input: {}, cron: 0 9 * * *}\n")
    said = lab("worker", "desk.py:desk", "--once")
    remark = "the schedule odd starts no run: this journal was never opened with an agent refund_dsk"
    assert (said.status, f"{remark}; did you mean refund_desk?" in said.remarks) == (0, True)
    assert remark in lab("schedules").remarks
    assert "refund_dsk" not in lab("schedules", "list", "leap").remarks


def test_a_schedule_whose_queue_is_drained_says_so(lab: Lab):
    assert lab("queues", "drain", "default", "--why", "we move").status == 0
    assert "waits: the queue default is drained by anna: we move" in lab("schedules").out
    assert lab("queues", "resume", "default").status == 0
    assert "drained" not in lab("schedules").out


def test_a_schedule_is_paused_and_resumed_by_a_person(lab: Lab):
    said = lab("schedules", "pause", "leap", "--why", "the bank is closed")
    assert (said.status, said.out) == (0, "leap does not fire until it is resumed.\n")
    assert lab("schedules", "pause", "leap", "--by", "bob").out == "leap is paused by anna: the bank is closed.\n"
    assert "paused by anna: the bank is closed" in lab("schedules").out
    assert "leap" not in {one["schedule"] for one in lab("schedules", "--next", "3", "--json").json["next"]}
    assert "1 paused" in lab("schedules", "--next", "3").out
    assert lab("doctor").status == 0
    again = lab("schedules", "resume", "leap", "--json").json
    assert (again["schedule"], again["paused"], again["changed"]) == ("leap", "", True)
    assert "leap was not paused." in lab("schedules", "resume", "leap").out


@pytest.mark.parametrize(("words", "text"), [
    (("pause",), "schedules pause needs the name of a schedule"),
    (("pause", "leep"), "schedule 'leep' does not exist"),
    (("list", "leep"), "did you mean leap?"),
    (("--next", "0"), "0 is not in the range"),
    (("stop", "leap"), "'stop' is not one of"),
])  # fmt: skip
def test_bad_input_is_refused(lab: Lab, words: tuple[str, ...], text: str):
    said = lab("schedules", *words)
    assert said.status == 2
    assert text in said.err


def test_a_file_with_a_fault_is_refused_and_changes_nothing(lab: Lab):
    lab.write("queues.yaml", FILE.replace("Europe/Berlin", "Europe/Berln"))
    said = lab("worker", "desk.py:desk", "--once")
    assert said.status == 2
    assert "schedules.leap.zone: time zone 'Europe/Berln' does not exist; did you mean Europe/Berlin?" in said.err
    assert "correct " in said.err
    assert "3 schedules" in lab("schedules").out


def test_a_worker_submits_and_drives_what_is_due(lab: Lab):
    lab.write("queues.yaml", FILE + "  often: {agent: refund_desk, input: {}, every: 1s, missed: all}\n")
    last = None
    while last is None:  # until the first second is over
        assert lab("worker", "desk.py:desk", "--once").status == 0
        last = lab("schedules", "list", "often", "--json").json["schedules"][0]["last"]
    said = lab("show", last["run"])
    assert said.status == 0
    assert f'completed     "{last["run"]}"' in said.out


NOT_YET = "{} declared in queues.yaml, not yet in the journal: start a worker. Next: beforehand worker"


def test_what_is_declared_and_not_yet_in_the_journal_is_said(lab: Lab):
    """A declaration comes into the journal with the next process that opens the app, and until then nothing fires."""
    for command in ("schedules", "queues"):
        assert "not yet in the journal" not in lab(command).err, command
    lab.write(
        "queues.yaml", FILE + "  new: {agent: refund_desk, input: {}, every: 1h}\nqueues: {slow: {concurrency: 1}}\n"
    )
    for command, what in (("schedules", "1 schedule"), ("queues", "1 limit")):
        said = lab(command)
        assert (said.status, NOT_YET.format(what) in " ".join(said.err.split())) == (0, True), said.err
    assert lab("worker", "desk.py:desk", "--once").status == 0
    lab.write("queues.yaml", "schedules: {new: {agent: refund_desk}}\n")
    for command in ("schedules", "queues"):
        said = lab(command)
        assert (said.status, "queues.yaml" in said.err) == (0, True), "a file with a fault hides nothing of the journal"
        assert "not yet in the journal" not in said.err
