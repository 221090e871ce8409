"""`beforehand notices`, and a worker that reaches people by a real mail server: killed while it sends, and refused."""

import os
import subprocess
import threading
from typing import Any

import pytest

from tests.cli.lab import Lab
from tests.unit.console.notify.offices import Office, plain, post_office

DESK = '''
from beforehand import Run, agent, tool


@tool(gate="true")
def refund(order: str, cents: int) -> str:
    """Pay it back."""
    return "paid"


@agent(run_id="t-{order}", tools=[refund])
async def desk(run: Run, order: str) -> str:
    """Refund fifty euros."""
    return await refund(order, 5000)
'''


def reach(office: Office, **settings: str) -> str:
    more = "".join(f"    {name}: {value}\n" for name, value in settings.items())
    return f"""
smtp: {{from: desk@example.com, server: "{office.server}", tls: none}}
base_url: https://desk.example.com
channels:
  - mail: ann@example.com
    name: ann
{more}"""


@pytest.fixture
def asked(beforehand: Lab) -> Lab:
    beforehand.write("desk.py", DESK)
    assert beforehand("run", "desk.py:desk", '"A-17"').status == 3
    return beforehand


def work(lab: Lab) -> None:
    assert lab("worker", "desk.py:desk", "--once", "--reach", "reach.yaml").status == 0


def test_a_worker_tells_who_is_asked_and_the_listing_says_so(asked: Lab):
    assert asked("notices").lines == ["No notifications were sent yet."]
    with post_office() as office:
        asked.write("reach.yaml", reach(office))
        due = asked("notices", "--reach", "reach.yaml").lines
        assert due[1:3] == ["due  ann (ann@example.com), new:", "  t-A-17/refund#1"]
        assert asked("notices", "list", "bob", "--reach", "reach.yaml", "--json").json == {"channels": [], "due": []}
        work(asked)
        assert [one["items"] for one in asked("notices", "--reach", "reach.yaml", "--json").json["due"]] == [[]]
        work(asked)
    (message,) = office.box
    assert "beforehand answer t-A-17/refund#1 yes" in plain(message)
    assert "https://desk.example.com/links/" in plain(message)
    shown = asked("notices").lines
    assert shown[:2] == ["ann  1 message", "  0 on the way, 0 unknown, 0 not sent"]
    assert shown[2].startswith("  sent  ")
    assert shown[2].endswith("t-A-17/refund#1")
    (channel,) = asked("notices", "--json").json["channels"]
    (notice,) = channel["notices"]
    assert (notice["state"], notice["said"], notice["items"]) == ("sent", "taken: 250", ["t-A-17/refund#1"])
    assert asked("notices", "list", "bob", "--json").json == {"channels": []}
    assert [one["run"] for one in asked("ps", "--json").json["runs"]] == ["t-A-17"]


def test_a_project_says_where_its_channels_are(asked: Lab):
    asked.write("pyproject.toml", '[tool.beforehand]\nreach = "people/reach.yaml"\nagents = ["desk.py:desk"]\n')
    (asked.directory / "people").mkdir()
    with post_office() as office:
        asked.write("people/reach.yaml", reach(office))
        assert asked("worker", "--once").status == 0
    assert len(office.box) == 1


def test_a_test_notice_goes_through_each_channel_now_and_its_end_is_said(beforehand: Lab):
    with post_office() as office:
        beforehand.write("reach.yaml", reach(office))
        tested = beforehand("notices", "test", "--reach", "reach.yaml", "--by", "bea")
        assert (tested.status, tested.lines) == (0, ["ann  sent  taken: 250"])
        office.rcpt = ["550 5.1.1 no such mailbox"]
        refused = beforehand("notices", "test", "ann", "--reach", "reach.yaml", "--json")
        assert refused.status == 1
        (one,) = refused.json["tested"]
        assert one["state"] == "failed"
        assert "answered 550" in one["said"]
    assert [message["Subject"] for message in office.box] == ["Beforehand: a test notice, asked for by bea"]
    shown = beforehand("notices").lines
    assert shown[1] == "  0 on the way, 0 unknown, 1 not sent"
    assert "beforehand show notice-ann-000002" in shown[4]
    assert beforehand("notices", "test", "bob", "--reach", "reach.yaml").status == 2
    assert beforehand("notices", "test").status == 2


def test_link_keys_are_rotated(asked: Lab):
    nothing = asked("notices", "rotate")
    assert (nothing.status, "no link key" in nothing.err) == (2, True)
    with post_office() as office:
        asked.write("reach.yaml", reach(office))
        work(asked)
    file = asked.directory / "beforehand.db.linkkeys"
    first = file.read_text()
    assert asked("notices", "rotate").status == 0
    assert file.read_text() != first


@pytest.mark.parametrize("moment", ["handle_RCPT", "handle_DATA"])
def test_a_worker_that_is_killed_while_it_sends_leaves_what_nobody_can_tell(asked: Lab, moment: str):
    """Before the message and after it: either way the mail is not sent again as if nothing had been, and says so."""
    workers, started = list[subprocess.Popen[str]](), threading.Event()
    with post_office() as office:
        take = getattr(office, moment)

        async def kill_whoever_sends(*given: Any) -> str:
            word: str = await take(*given)
            if not killed:
                killed.append(moment)
                started.wait(30)
                workers[0].kill()
                workers[0].wait()
            return word

        killed: list[str] = []
        setattr(office, moment, kill_whoever_sends)
        asked.write("reach.yaml", reach(office, window="0s"))
        workers.append(asked.start("worker", "desk.py:desk", "--reach", "reach.yaml"))
        started.set()
        workers[0].communicate()
        assert workers[0].returncode == -9
        arrived = len(office.box)
        assert arrived == (moment == "handle_DATA")
        while len(office.box) == arrived:
            work(asked)
        work(asked)
    assert len(office.box) == arrived + 1
    assert office.box[-1]["Subject"] == "Beforehand: Perhaps once more: approval t-A-17/refund#1"
    (channel,) = asked("notices", "--json").json["channels"]
    assert [one["state"] for one in channel["notices"]] == ["sent", "unknown"]
    assert channel["unknown"] == ["notice-ann-000001"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("channels: [", "not YAML: line"),
        ("channels: []\nextra: 1", "unknown field"),
        ("channels: [{name: x}]", "one of mail, slack_env"),
        ("channels: [{mail: ann@example.com}]", "a mail channel needs a server"),
        ("channels: [{slack_env: SLACK_URL, after: soon}]", "not a duration"),
        ("channels: [{slack_env: 'https://hooks.example.com/T0/B0/s3cret'}]", "given as a value"),
        ("channels: [{slack_env: A}, {slack_env: B}]", "two channels are called slack"),
        ("channels: [{slack_env: A}]\nbase_url: nowhere", "not the address of an inbox"),
        ("channels: [{slack_env: A, remind_every: 0s}]", "remind without end"),
        ("smtp: {from: a b, server: x}\nchannels: [{mail: ann@example.com}]", "not a mail address"),
    ],
)
def test_a_file_that_does_not_fit_says_what(beforehand: Lab, text: str, said: str):
    beforehand.write("reach.yaml", text)
    refused = beforehand("notices", "test", "--reach", "reach.yaml")
    assert refused.status == 2
    assert said in refused.remarks
    assert "s3cret" not in refused.err


def test_no_file_is_said(beforehand: Lab):
    refused = beforehand("notices", "test", "--reach", "gone.yaml")
    assert (refused.status, "cannot be read" in refused.err) == (2, True)


def test_secrets_are_waited_for_and_never_shown(asked: Lab):
    """A canary in the password and in the address of a chat: it is in no file, no output and no remark."""
    canary = os.urandom(12).hex()
    with post_office() as office:
        text = reach(office).replace("tls: none", "tls: none, user: desk, password_env: SMTP_PASSWORD")
        asked.write("reach.yaml", text + "  - slack_env: SLACK_URL\n")
        secrets = {"SMTP_PASSWORD": canary, "SLACK_URL": f"http://127.0.0.1:9/{canary}"}
        said = asked("worker", "desk.py:desk", "--once", "--reach", "reach.yaml", **secrets)
        tested = asked("notices", "test", "--reach", "reach.yaml", **secrets)
    assert tested.status == 1
    shown = [asked("show", run).out for run in ("notice-ann-000001", "notice-slack-000001")]
    everything = [said.out, said.err, tested.out, tested.err, asked("notices", "--json").out, *shown]
    assert canary not in "".join(everything)
    for file in asked.directory.iterdir():
        if file.is_file():
            assert canary.encode() not in file.read_bytes(), file.name
