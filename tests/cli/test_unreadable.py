"""A record or a ledger entry that cannot be read is set aside by itself: everything beside it goes on."""

import asyncio
import sqlite3
import typing
from pathlib import Path
from typing import Any

import pytest

from beforehand.inspect.ledger_kinds import KINDS
from beforehand.journal.entry_codec import REFUSED
from beforehand.journal.port import ClaimRequest, LeaseGranted, Post, RunChange, Write
from beforehand.journal.run_log import beginning
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.model.records import Record
from tests.cli.lab import Lab


def kinds(union: Any) -> list[str]:
    """The names of all records."""
    parts = typing.get_args(union)
    return [name for part in parts for name in kinds(part)] if parts else [union.__name__]


BODIES = {
    **{kind: f'{{"kind":"{kind}","at":"then"}}'.encode() for kind in kinds(Record)},
    "of-another-version": b'{"kind":"FromTheFuture","at":1}',
    "a-number": b"7",
    "an-end": b'{"kind":"RunStar',
}


def spoil(path: Path, bodies: dict[str, bytes], posts: list[Post]) -> None:
    """Store what no reader takes, as a writer without checks would have."""

    async def main() -> None:
        journal = SqliteJournal(path)
        identity = await journal.open()
        for name, body in bodies.items():
            begun = b'{"kind":"RunStarted","agent":"desk","input":{"input":{"id":"9"}},"digest":"d"}'
            new = beginning(identity.namespace, f"bad-{name}", "desk", [begun, body], program="desk")
            claimed = await journal.commit(ClaimRequest(f"bad-{name}", "w", new))
            assert isinstance(claimed, LeaseGranted)
            await journal.commit(Write(claimed.lease, (), RunChange("running", release=True)))
        for post in posts:
            await journal.commit(post)
        await journal.close()

    asyncio.run(main())


def test_a_record_that_cannot_be_read_stops_its_run_and_no_other(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2", mode="lost")).status == 3
    spoil(beforehand.directory / "beforehand.db", BODIES, [])
    worked = beforehand("worker", "desk.py:desk", "--once")
    assert worked.status == 1, "it names the runs that it could not drive, and drives the others"
    assert all(f"bad-{name}" in worked.err for name in BODIES)
    assert beforehand("run", "desk.py:desk", beforehand.ticket("3")).status == 0, "other runs begin"
    rows = {row["run"]: row for row in beforehand("ps", "--limit", "200", "--json").json["runs"]}
    for name in BODIES:
        row = rows[f"bad-{name}"]
        assert (row["status"], row["reason"][:11]) == ("stopped", "unreadable:"), row
    assert rows["ticket-1"]["status"] == rows["ticket-3"]["status"] == "completed"

    asked = {item["item"]: item for item in beforehand("inbox", "--json").json}
    assert {item for item, one in asked.items() if one["kind"] == "unreadable"} == {f"bad-{name}" for name in BODIES}
    assert asked["bad-a-number"]["answers"] == [
        "beforehand verify",
        "beforehand doctor",
        "beforehand resume bad-a-number",
    ]
    assert "ticket-2/restock#1" in asked, "what others are asked is asked as before"
    listed = beforehand("inbox", "--limit", "200").out
    assert "ticket-2/restock#1" in listed
    assert "unreadable bad-a-number" in listed

    doctor = beforehand("doctor", "--json")
    assert {text.partition(":")[0] for text in doctor.json["journal"]["unreadable"]} == {f"bad-{n}" for n in BODIES}
    rebuilt = beforehand("doctor", "--rebuild", "--json")
    assert (rebuilt.status, rebuilt.json["rebuilt"]["busy"]) == (0, [])
    stopped = beforehand("ps", "--status", "stopped", "--limit", "200", "--json").json["runs"]
    assert {f"bad-{name}" for name in BODIES} <= {row["run"] for row in stopped}

    for command in (("show", "bad-a-number"), ("resume", "bad-a-number"), ("cancel", "bad-a-number")):
        said = beforehand(*command)
        assert (said.status, "cannot be read" in said.err) == (1, True), said
    for command in ("figures", "pending", "verify"):
        assert beforehand(command).status in {0, 4}
    resolved = beforehand("resolve", "ticket-2/restock#1", "--happened", "--result", "null")
    assert resolved.status == 0, resolved


BAD = (b'{"word":"pause","by":null}', b"7", b'{"by":', b"[]")


def streams() -> list[str]:
    """A stream of each kind that the runs beside it do not depend on, and those that all of them read."""
    own = {
        "run": "run/ticket-1", "pause": "pause/keyed", "standing": "standing", "webhook-endpoints": "webhook-endpoints",
        "outbox": "outbox", "deliveries": "deliveries", "journal": "journal", REFUSED: "refused",
    }  # fmt: skip
    return [own.get(name, f"{name}/other") for name in KINDS if name not in {"event", "door"}]


@pytest.mark.parametrize("body", BAD)
def test_a_ledger_entry_that_cannot_be_read_is_set_aside(beforehand: Lab, body: bytes):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost")).status == 3
    spoil(beforehand.directory / "beforehand.db", {}, [Post(stream, "", body) for stream in streams()])
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2")).status == 0, "the journal opens, and runs go on"
    assert beforehand("worker", "desk.py:desk", "--once").status == 0
    assert "ticket-1/restock#1" in beforehand("inbox").out
    for command in ("ps", "figures", "pending", "webhooks", "notices"):
        said = beforehand(command)
        assert said.status == 0, (command, said)
    assert beforehand("doctor", "--rebuild").status == 0
    named = beforehand("doctor", "--json").json["journal"]["refused_entries"]
    unnamed = [stream for stream in streams() if not any(f"({stream})" in text for text in named)]
    assert set(unnamed) <= {"journal", "sign-in/other", "links/other"}, "those hold any text by name"


def test_commands_after_one_that_cannot_be_read_are_applied(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost")).status == 3
    spoil(beforehand.directory / "beforehand.db", {}, [Post("run/ticket-1", "", b'{"word":"cancel","by":null}')])
    assert beforehand("resolve", "ticket-1/restock#1", "--happened", "--result", "null").status == 0
    assert beforehand("resume", "ticket-1", "--agent", "desk.py:desk").status == 0
    story = beforehand("show", "ticket-1").words
    assert "unreadable" in story
    assert "cannot be read" in story


def test_a_tool_whose_pause_cannot_be_read_is_paused_until_it_is_unpaused(beforehand: Lab):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1")).status == 0
    spoil(beforehand.directory / "beforehand.db", {}, [Post("pause/refund", "", b'{"word":"pause","by":null}')])
    assert "refund" in beforehand("doctor", "--json").json["journal"]["paused_tools"]
    assert beforehand("unpause", "--tool", "refund").status == 0
    assert "Unreadable and skipped: 1 ledger entry" in beforehand("inbox").err
    assert beforehand("doctor", "--json").json["journal"]["paused_tools"] == {}
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2")).status == 0


@pytest.mark.parametrize("waits", ["[7]", "{", '[{"kind":"approval","due":"soon"}]'])
def test_a_spoilt_entry_of_the_listing_is_asked_about_until_it_is_rebuilt(beforehand: Lab, waits: str):
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost")).status == 3
    assert beforehand("run", "desk.py:desk", beforehand.ticket("2", mode="lost")).status == 3
    with sqlite3.connect(beforehand.directory / "beforehand.db") as journal:
        journal.execute("update run set waits = ? where name = 'ticket-1'", (waits,))
    journal.close()
    asked = {item["item"]: item["kind"] for item in beforehand("inbox", "--json").json}
    assert asked == {"ticket-1": "unreadable", "ticket-2/restock#1": "review"}
    assert beforehand("top", "--once").status == 0
    rebuilt = beforehand("doctor", "--rebuild", "--json")
    assert (rebuilt.status, rebuilt.json["rebuilt"]["changed"]) == (0, ["ticket-1"])
    asked = {item["item"]: item["kind"] for item in beforehand("inbox", "--json").json}
    assert asked == {"ticket-1/restock#1": "review", "ticket-2/restock#1": "review"}
