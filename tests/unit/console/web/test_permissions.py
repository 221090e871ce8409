"""Every call of the API for every role, and for roles of other places: what is not theirs is as good as not there."""

from typing import Any

import httpx2
import pytest

from beforehand.errors import RunSuspended
from beforehand.people.loaded_item import load_item
from beforehand_console.auth.authorize import ROLES, Grant, Role
from tests.unit.console.web.stand import Stand, desk_of, standing
from tests.unit.engine.lab import Lab, virtual

REFUND, MAIL, TRIP, STOCK = "refund-ann/refund#1", "mail-ann/send_mail#1", "trip-ann/ask#1", "stock-ann/restock#1"
LOOKS = ("/api/v1/items", f"/api/v1/items/{REFUND.replace('#', '%23')}", "/api/v1/runs", "/api/v1/runs/refund-ann",
         "/api/v1/runs/refund-ann/timeline", "/inbox", "/runs", "/runs/refund-ann", "/health", "/api/v1/health", "/shadow-reviews", "/api/v1/shadow-reviews", "/bulk?item=trip-ann%2Fask%231")  # fmt: skip
WHO_LOOK = ROLES[1:]  # a submitter sees its own runs only: see test_submit
ANSWERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "decline": (REFUND, {"type": "decline", "why": "no"}, "answerer"),
    "approve": (MAIL, {"type": "approve"}, "answerer"),
    "reply": (TRIP, {"type": "reply", "value": "Rome"}, "answerer"),
    "snooze": (MAIL, {"type": "snooze", "until_ms": 4_000_000_000_000}, "answerer"),
    "delegate": (MAIL, {"type": "delegate", "to": "cid"}, "answerer"),
    "escalate": (STOCK, {"type": "escalate"}, "answerer"),
    "happened": (STOCK, {"type": "happened", "evidence": "seen", "result": "stocked"}, "operator"),
    "abandon": (STOCK, {"type": "abandon"}, "operator"),
}  # fmt: skip


async def given(stand: Stand, client: httpx2.AsyncClient, item: str, answer: dict[str, Any]) -> httpx2.Response:
    shown = (await load_item(stand.app.service.reader, item)).digest
    return await client.post("/api/v1/answers", json={"item": item, "answer": answer, "shown": shown})


@pytest.mark.parametrize("role", WHO_LOOK)
@virtual
async def test_every_role_looks_everywhere(lab: Lab, role: Role):
    async with standing(lab) as stand:
        client = await stand.client("cid", Grant(role))
        for path in LOOKS:
            assert (await client.get(path)).status_code == 200, path


@pytest.mark.parametrize("word", ANSWERS)
@pytest.mark.parametrize("role", WHO_LOOK)
@virtual
async def test_each_answer_takes_its_role(lab: Lab, role: Role, word: str):
    item, answer, needed = ANSWERS[word]
    async with standing(lab) as stand:
        taken = await given(stand, await stand.client("cid", Grant(role)), item, answer)
        allowed = ROLES.index(role) >= ROLES.index(needed)  # type: ignore[arg-type]  # spelled in the table above
        assert taken.status_code == (200 if allowed else 403), taken.text
        noted = [one.access for one in await stand.authenticator.log.read("cid") if one.access.about == item]
        assert [one.allowed for one in noted] == [allowed], "on record once, whatever it was"


@virtual
async def test_a_role_of_one_tool_sees_and_answers_what_is_of_that_tool(lab: Lab):
    async with standing(lab) as stand:
        client = await stand.client("cid", Grant("operator", ("refund",)))
        assert [one["item"] for one in (await client.get("/api/v1/items")).json()["items"]] == [REFUND]
        listed = (await client.get("/inbox")).text
        assert "mail-ann" not in listed
        assert "trip-ann" not in listed
        assert (await given(stand, client, REFUND, {"type": "decline"})).status_code == 200
        for item, answer, _ in ANSWERS.values():
            if item != REFUND:
                assert (await given(stand, client, item, answer)).status_code == 404


@virtual
async def test_what_is_not_theirs_is_as_good_as_not_there(lab: Lab):
    async with standing(lab) as stand:
        client = await stand.client("cid", Grant("operator", (), ("eu",)))
        assert (await client.get("/api/v1/items")).json()["total"] == 0
        told = set[str]()
        for item in (REFUND, "refund-ann/refund#2", "nobody/refund#1", "refund-ann"):
            found = await client.get(f"/api/v1/items/{item.replace('#', '%23')}")
            taken = await client.post(
                "/api/v1/answers", json={"item": item, "answer": {"type": "approve"}, "shown": "0" * 32}
            )
            for answer in (found, taken):
                assert answer.status_code == 404
                told.add(answer.text.replace(item, "ITEM"))
        assert len(told) == 1, told
        for path in ("/api/v1/runs", "/api/v1/runs/refund-ann", "/api/v1/runs/refund-ann/timeline"):
            assert (await client.get(path)).status_code == 403
        assert lab.sent == []


@virtual
async def test_what_was_put_into_a_queue_belongs_to_it(lab: Lab):
    async with standing(lab) as stand:
        eu = await stand.client("eve", Grant("answerer", (), ("eu",)))
        admin = await stand.client("anna")
        assert (await given(stand, admin, MAIL, {"type": "delegate", "queue": "eu"})).status_code == 200
        assert [one["item"] for one in (await eu.get("/api/v1/items")).json()["items"]] == [MAIL]
        assert (await given(stand, eu, MAIL, {"type": "delegate", "queue": "us"})).status_code == 200
        assert (await given(stand, eu, MAIL, {"type": "approve"})).status_code == 404, "given away is given away"


@virtual
async def test_who_started_a_run_says_no_to_it_but_not_yes(lab: Lab):
    agents = desk_of(lab)
    async with standing(lab, begun=()) as stand:
        for name in ("bea", "cid"):
            await stand.authenticator.accounts.add(name, [Grant("admin")], by="root")
        bea, cid = await stand.proven("bea"), await stand.proven("cid")
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await stand.app.run(agents[0], name, by="Bea")
        for answer in ({"type": "approve"}, {"type": "stand_in", "result": "x"}):
            refused = await given(stand, bea, REFUND, answer)
            assert refused.status_code == 403
            assert "bea proposed" in refused.json()["detail"]
        assert (await given(stand, bea, "refund-bob/refund#1", {"type": "decline"})).status_code == 200
        assert (await given(stand, cid, REFUND, {"type": "approve"})).status_code == 200


@virtual
async def test_an_editor_approves_their_edit_on_no_face(lab: Lab):
    """Read at 9,000, edited to something else for another recipient: one person's answers never send it."""
    async with standing(lab) as stand:
        for name in ("bea", "cid"):
            await stand.authenticator.accounts.add(name, [Grant("admin")], by="root")
        bea, cid = await stand.proven("bea"), await stand.proven("cid")
        edit = {"type": "edit", "arguments": {"cents": 99_999_999, "note": "for mallory"}}
        assert (await given(stand, bea, REFUND, edit)).status_code == 200
        with pytest.raises(RunSuspended):
            await stand.app.resume("refund-ann")
        for answer in ({"type": "approve"}, {"type": "stand_in", "result": "x"}):
            refused = await given(stand, bea, REFUND, answer)
            assert (refused.status_code, "a person cannot approve their own proposal" in refused.text) == (403, True)
        shown = (await load_item(stand.app.service.reader, REFUND)).digest
        bulk = {"items": [{"item": REFUND, "shown": shown}], "answer": {"type": "approve"}}
        assert (await bea.post("/api/v1/answers/bulk", json=bulk)).status_code == 403
        with pytest.raises(RunSuspended):
            await stand.app.resume("refund-ann")
        assert lab.sent == []
        assert (await given(stand, cid, REFUND, {"type": "approve"})).status_code == 200
        await stand.app.resume("refund-ann")
    assert lab.sent == ["refund 99999999"]
