"""The page of silent failures and lessons: what it shows, who may see and decide, and what is refused."""

import msgspec
import pytest

from beforehand.inspect.monitors.findings import record_findings, shown_findings
from beforehand.inspect.monitors.rules import SilentFailure
from beforehand.model.lessons import LessonEvidence, LessonProposed
from beforehand.people.lessons import list_lessons, propose_lesson
from beforehand_console.auth.authorize import Grant
from tests.unit.console.web.stand import HOSTILE, Stand, standing
from tests.unit.engine.lab import Lab, virtual

NEWEST = 1_767_225_500_000
FOUND = SilentFailure(
    "refusals", "refund_desk", NEWEST, f"7 of 9 writes failed {HOSTILE}", ["run-1/refund#1 failed"], "beforehand why run-1",
    "5d41c7a0", NEWEST,
)  # fmt: skip


async def found(stand: Stand, newest_ms: int = NEWEST) -> None:
    one = msgspec.structs.replace(FOUND, newest_ms=newest_ms)
    engine = stand.app.engine
    await record_findings(engine.journal, engine.outbox, [one], stand.authenticator.now_ms)


async def proposed(stand: Stand, by: str) -> str:
    evidence = (LessonEvidence("run-1", ("the run is stopped",), NEWEST),)
    wanted = LessonProposed("", "refund_desk", "avoid", "Ask before a second refund.", evidence, by)
    return (await propose_lesson(stand.app.engine, wanted)).id


@virtual
async def test_a_finding_is_shown_and_acknowledged_with_its_evidence(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert "No finding waits to be acknowledged" in (await client.get("/findings")).text
        assert "silent failure" not in (await client.get("/inbox")).text
        await found(stand)
        assert '<a href="/findings">1 silent failure or lesson waits</a>' in (await client.get("/inbox")).text
        page = (await client.get("/findings")).text
        assert "7 of 9 writes failed" in page
        assert "run-1/refund#1 failed" in page
        assert "<script>alert(1)" not in page
        assert "\u202e" not in page
        form = {"newest": str(NEWEST), "why": "the bank was down"}
        done = await client.post(f"/findings/{FOUND.id}", data=form)
        assert (done.status_code, done.headers["location"]) == (303, "/findings")
        assert "No finding waits to be acknowledged" in (await client.get("/findings")).text
        again = await client.post(f"/findings/{FOUND.id}", data=form)
        assert again.status_code == 409
        assert "is not a finding any more, or is acknowledged" in again.text
        await found(stand, NEWEST + 1)
        assert "7 of 9 writes failed" in (await client.get("/findings")).text, "there is newer evidence"


@virtual
async def test_evidence_that_came_after_the_page_was_shown_is_not_acknowledged(lab: Lab):
    async with standing(lab, begun=()) as stand, await stand.client("bea") as client:
        await found(stand, NEWEST + 5)
        await client.post(f"/findings/{FOUND.id}", data={"newest": str(NEWEST)})
        assert await shown_findings(stand.app.engine.journal)


@virtual
async def test_a_lesson_is_decided_by_another_person(lab: Lab):
    async with standing(lab, begun=()) as stand, await stand.client("bea") as bea, await stand.client("cid") as cid:
        first, second = await proposed(stand, "bea"), ""
        refused = await bea.post(f"/lessons/{first}", data={"word": "approve"})
        assert refused.status_code == 409
        assert "another person approves it" in refused.text
        assert "Ask before a second refund." in refused.text
        assert (await cid.post(f"/lessons/{first}", data={"word": "decline", "why": "too wide"})).status_code == 303
        second = await proposed(stand, "bea")
        assert (await cid.post(f"/lessons/{second}", data={"word": "approve"})).status_code == 303
        states = {one.id: (one.state, one.decided_by) for one in await list_lessons(stand.app.engine.journal)}
        assert states == {first: ("declined", "cid"), second: ("approved", "cid")}
        assert "Lessons that wait" not in (await bea.get("/findings")).text


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (f"/findings/{FOUND.id}", {}),
        (f"/findings/{FOUND.id}", {"newest": "-1"}),
        ("/findings/ffffffff", {"newest": "1"}),
        ("/lessons/l-none", {"word": "approve"}),
        ("/lessons/l-none", {"word": "delete"}),
        ("/lessons/l-none", {}),
    ],
)
@virtual
async def test_a_form_that_does_not_fit_records_nothing(lab: Lab, path: str, form: dict[str, str]):
    async with standing(lab, begun=()) as stand, await stand.client("bea") as client:
        await found(stand)
        assert (await client.post(path, data=form)).status_code == 409
        assert "7 of 9 writes failed" in (await client.get("/findings")).text


@virtual
async def test_it_is_about_everything_and_takes_a_role_everywhere(lab: Lab):
    async with standing(lab) as stand:
        await found(stand)
        lesson = await proposed(stand, "bea")
        narrow = await stand.client("cid", Grant("operator", ("refund",)))
        looks = await stand.client("dan", Grant("viewer"))
        assert (await narrow.get("/findings")).status_code == 403
        assert "/findings" not in (await narrow.get("/inbox")).text
        assert (await looks.get("/findings")).status_code == 200
        for client in (narrow, looks):
            assert (await client.post(f"/findings/{FOUND.id}", data={"newest": str(NEWEST)})).status_code == 403
            assert (await client.post(f"/lessons/{lesson}", data={"word": "decline"})).status_code == 403
