"""A deferred outcome whose processes are really killed: at every occurrence of every point of asking for it, of taking
in its webhook, and of going on with it. The office is files, and outlives them; as senders do, it tries again.
"""

import base64
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from beforehand.journal.record_codec import decode
from tests.crash.deferred import NUMBER
from tests.crash.forks import Forks
from tests.crash.points import one_of_each, struck
from tests.draws import daily, pick

RESULT = "permit 9"
DONE = f"ann has {RESULT}"


@pytest.fixture(scope="module")
def lives() -> Iterator[Forks]:
    program = Forks("tests.crash.deferred")
    yield program
    program.end()


class Office:
    """One journal, and the office that the run of it asks."""

    def __init__(self, lives: Forks, place: Path, kind: str) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.place, self.kind, self._lives = place, kind, lives

    def drive(self, point: str = "", number: int = 0) -> int:
        """The run goes on in a new process; how that ended."""
        return self._live(self.kind, point, number)

    def announce(self) -> None:
        """The office signs its answer, once for all tries."""
        secret = "whsec_" + base64.b64encode(os.urandom(24)).decode()
        body = json.dumps({"key": NUMBER, "status": "succeeded", "result": RESULT})
        at = datetime.now(UTC)
        signature = Webhook(secret).sign("msg_1", at, body)
        names = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
        (self.place / "webhook.json").write_text(json.dumps({"secret": secret, "body": body, "headers": names}))

    def send(self, point: str = "", number: int = 0) -> int:
        """The office sends its webhook; how the process that took it in ended."""
        return self._live("hook", point, number)

    def heard(self) -> tuple[str, dict[str, int]]:
        """What the last process heard, and the points that it came by."""
        said, points = json.loads((self.place / "permits.db.heard").read_text())
        return said, points

    def requests(self) -> list[str]:
        """The keys of all requests, in order."""
        found = self.place / "requests"
        return found.read_text().split("\n")[:-1] if found.exists() else []

    def records(self) -> Counter[str]:
        """How often each kind of record stands in the journal."""
        with closing(sqlite3.connect(self.place / "permits.db")) as database:
            rows = database.execute("select cast(body as blob) from record order by id").fetchall()
        return Counter(type(decode(body)).__name__ for (body,) in rows)

    def _live(self, what: str, point: str, number: int) -> int:
        return self._lives.live(what, str(self.place / "permits.db"), str(self.place), point, number)


def finish(office: Office) -> None:
    """No process dies any more: the run goes on, its answer comes, and it ends, having asked once."""
    assert office.drive() == 0
    if office.heard()[0] != DONE:
        assert office.heard()[0].startswith("waits: "), office.heard()
        assert office.send() == 0
        assert office.heard()[0] == "204"
        assert office.drive() == 0
    assert office.heard()[0] == DONE
    assert len(set(office.requests())) == 1, "it was asked for under two keys"
    found = office.records()
    assert found["LateReport"] == found["OperationSettled"] == 1, found
    assert office.drive() == 0
    assert office.heard()[0] == DONE


def points_of(office: Office) -> list[tuple[str, int]]:
    """Every occurrence of every point that the last life came by."""
    return [(point, number) for point, times in sorted(office.heard()[1].items()) for number in range(1, times + 1)]


def accepted(lives: Forks, place: Path, kind: str) -> Office:
    """An office that was asked, and has decided."""
    office = Office(lives, place, kind)
    assert office.drive() == 0
    office.announce()
    return office


@pytest.mark.deeper
@pytest.mark.parametrize(
    "early", [pytest.param(False, marks=pytest.mark.deep), True], ids=["before its answer", "after its answer"]
)
def test_a_kill_at_every_point_of_asking(lives: Forks, tmp_path: Path, early: bool):
    """The webhook may be there before the run has even begun."""

    def begun() -> Office:
        office = Office(lives, tmp_path / "office", "keyed")
        office.announce()
        if early:
            assert office.send() == 0
        return office

    office = begun()
    assert office.drive() == 0
    points = points_of(office)
    assert len(points) > 10
    for point, number in pick(points, one_of_each(points)):
        office = begun()
        if not struck(office.drive(point, number), point, number):
            continue
        finish(office)


@pytest.mark.deeper
def test_what_cannot_be_asked_for_again_is_not(lives: Forks, tmp_path: Path):
    """Where its number died with its process, it cannot be known for what the answer is: a person is asked."""
    points = points_of(accepted(lives, tmp_path / "office", "plain"))
    for point, number in pick(points, one_of_each(points)):
        office = Office(lives, tmp_path / "office", "plain")
        office.announce()
        assert office.drive(point, number) == -9
        assert office.drive() == 0
        if office.requests():
            assert office.send() == 0
            assert office.drive() == 0
        assert len(office.requests()) <= 1, f"asked for twice after {point} {number}"
        said, _ = office.heard()
        assert said == DONE or "permit-plain/plain#1" in said, said


@pytest.mark.deeper
@pytest.mark.parametrize("kind", daily(["keyed", "plain"]))
def test_a_kill_at_every_point_of_taking_in_a_webhook(lives: Forks, tmp_path: Path, kind: str):
    office = accepted(lives, tmp_path / "office", kind)
    assert office.send() == 0
    points = points_of(office)
    assert {"before_post", "after_post", "before_commit", "after_commit"} <= dict(points).keys()
    for point, number in pick(points, one_of_each(points)):
        office = accepted(lives, tmp_path / "office", kind)
        if not struck(office.send(point, number), point, number):
            continue
        assert office.send() == 0, "the sender tries again"
        assert office.heard()[0] == "204"
        finish(office)


@pytest.mark.deeper
def test_a_kill_at_every_point_of_going_on_with_an_answer(lives: Forks, tmp_path: Path):
    office = accepted(lives, tmp_path / "office", "keyed")
    assert office.send() == 0
    assert office.drive() == 0
    points = points_of(office)
    for point, number in pick(points, one_of_each(points)):
        office = accepted(lives, tmp_path / "office", "keyed")
        assert office.send() == 0
        if not struck(office.drive(point, number), point, number):
            continue
        finish(office)
