"""The API: what it lists, shows and takes, and how it refuses."""

from base64 import urlsafe_b64encode
from typing import Any

import httpx2
import msgspec
import pytest

from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand_console.auth.authorize import Grant
from beforehand_console.web.api import OPERATIONS, ROOT
from tests.unit.console.web.stand import HOSTILE, Stand, standing
from tests.unit.engine.lab import Lab, virtual

REFUND = "refund-ann/refund#1"
PROBLEM = "application/problem+json"


def path_of(item: str) -> str:
    return f"/api/v1/items/{item.replace('#', '%23')}"


async def give(client: httpx2.AsyncClient, item: str, answer: Any, shown: str = "") -> httpx2.Response:
    """Answer what is shown now, or what `shown` names."""
    shown = shown or (await client.get(path_of(item))).json()["digest"]
    body = msgspec.json.encode({"item": item, "shown": shown, "answer": msgspec.to_builtins(answer)})
    return await client.post("/api/v1/answers", content=body, headers={"content-type": "application/json"})


@virtual
async def test_the_list_is_filtered_and_read_page_by_page(lab: Lab):
    async with standing(lab, begun=("ann", "ben", "cleo")) as stand, await stand.client("bea") as client:
        whole = (await client.get("/api/v1/items")).json()
        assert (whole["total"], whole["next"], whole["kinds"]) == (
            12, "", {"approval": 6, "question": 3, "review": 3},
        )  # fmt: skip
        assert [one["kind"] for one in whole["items"][:3]] == ["approval"] * 3, "the nearest deadline first"
        seen: list[str] = []
        after = ""
        while True:
            page = (
                await client.get("/api/v1/items", params={"limit": "5", **({"after": after} if after else {})})
            ).json()
            assert page["before"] == len(seen)
            seen += [one["item"] for one in page["items"]]
            if not (after := page["next"]):
                break
        assert seen == [one["item"] for one in whole["items"]]
        found = (await client.get("/api/v1/items", params={"kind": "approval", "text": "BEN"})).json()
        assert {one["item"] for one in found["items"]} == {"refund-ben/refund#1", "mail-ben/send_mail#1"}


@virtual
async def test_an_item_answered_between_two_pages_hides_no_other(lab: Lab):
    async with standing(lab, begun=("ann", "ben", "cleo")) as stand, await stand.client("bea") as client:
        first = (await client.get("/api/v1/items", params={"limit": "2"})).json()
        await stand.app.service.decline(first["items"][0]["item"], by="cleo")
        rest = (await client.get("/api/v1/items", params={"after": first["next"], "limit": "500"})).json()
        assert len(rest["items"]) == 10


@virtual
async def test_what_is_shown_is_what_is_dispatched(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        dossier = (await client.get(path_of(REFUND))).json()
        assert (dossier["arguments"], dossier["open"]) == ({"cents": 9000, "note": "broken\non arrival"}, True)
        taken = await give(client, REFUND, a.Approve(why="seen the photos"), dossier["digest"])
        assert (taken.status_code, taken.json()) == (
            200, {"item": REFUND, "run": "refund-ann", "at_once": True},
        )  # fmt: skip
        await stand.app.resume("refund-ann")
        records = [record async for _, record in stand.app.service.reader.records("refund-ann")]
        granted = next(one for one in records if isinstance(one, r.ApprovalGranted))
        assert (granted.by, granted.note, granted.approval) == ("bea", "seen the photos", dossier["digest"])
        (sent,) = [one for one in records if isinstance(one, r.AttemptStarted)]
        assert sent.approval == dossier["digest"]
    assert lab.sent == ["refund 9000"]


@virtual
async def test_the_second_answer_is_told_so_and_nothing_is_sent_twice(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as bea, await stand.client("cleo") as cleo:
        shown = (await bea.get(path_of(REFUND))).json()["digest"]
        first = await give(bea, REFUND, a.Approve(), shown)
        second = await give(cleo, REFUND, a.Decline("too much"), shown)
        assert (first.status_code, second.status_code) == (200, 409)
        assert second.headers["content-type"] == PROBLEM
        assert second.json()["next_step"]
        again = await give(bea, REFUND, a.Approve(), shown)
        assert again.status_code == 409, "a request that is sent again is no second yes"


@virtual
async def test_an_answer_names_what_was_shown(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        other = (await client.get(path_of("mail-ann/send_mail#1"))).json()["digest"]
        refused = await give(client, REFUND, a.Approve(), other)
        assert (refused.status_code, refused.json()["error"]) == (409, "UsageError")
        assert "has changed since it was shown" in refused.json()["detail"]
        without = await client.post("/api/v1/answers", json={"item": REFUND, "answer": {"type": "approve"}})
        assert without.status_code == 422
        misfit = await give(client, REFUND, a.ReplyAnswer("Rome"))
        assert (misfit.status_code, "does not take this answer" in misfit.json()["detail"]) == (409, True)


@virtual
async def test_several_items_are_answered_together_or_not_at_all(lab: Lab):
    async with standing(lab, begun=("ann", "ben")) as stand, await stand.client("bea") as client:
        names = ["refund-ann/refund#1", "refund-ben/refund#1"]
        shown = [{"item": name, "shown": (await client.get(path_of(name))).json()["digest"]} for name in names]
        stale = [shown[0], {**shown[1], "shown": "0" * 32}]
        refused = await client.post("/api/v1/answers/bulk", json={"items": stale, "answer": {"type": "approve"}})
        assert refused.status_code == 409
        assert (await client.get(path_of(names[0]))).json()["open"], "nothing was taken"
        taken = await client.post("/api/v1/answers/bulk", json={"items": shown, "answer": {"type": "approve"}})
        assert [one["item"] for one in taken.json()["taken"]] == names
        for name in ("ann", "ben"):
            await stand.app.resume(f"refund-{name}")
    assert lab.sent == ["refund 9000", "refund 9000"]


@virtual
async def test_who_may_only_look_gives_no_answer_and_who_may_not_look_sees_none(lab: Lab):
    async with standing(lab) as stand:
        async with await stand.client("vic", Grant("viewer")) as viewer:
            assert (await viewer.get("/api/v1/items")).json()["total"] == 4
            refused = await give(viewer, REFUND, a.Approve())
            assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
        async with await stand.client("mia", Grant("answerer", queues=("mail",))) as narrow:
            assert (await narrow.get("/api/v1/items")).json()["total"] == 0
            assert (await narrow.get(path_of(REFUND))).status_code == 404, "and is not told what is there"
        async with await stand.client("ann", Grant("answerer")) as answerer:
            unsure = await give(answerer, "stock-ann/restock#1", a.HappenedAnswer("saw it"))
            assert unsure.status_code == 403, "what happened is for an operator to say"
        async with stand.stranger() as nobody:
            assert (await nobody.get("/api/v1/items")).status_code == 401
            assert (await nobody.post("/api/v1/answers", json={})).status_code == 401
    assert lab.sent == []


@virtual
async def test_runs_and_their_stories_can_be_read(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        runs = (await client.get("/api/v1/runs", params={"limit": "3"})).json()
        assert ([one["run"] for one in runs["runs"]], runs["next"]) == (
            ["mail-ann", "refund-ann", "stock-ann"], "stock-ann",
        )  # fmt: skip
        assert (await client.get("/api/v1/runs/trip-ann")).json()["waits"][0]["kind"] == "question"
        story = (await client.get("/api/v1/runs/mail-ann/timeline")).json()
        assert story["entries"][0]["arguments"]["body"] == HOSTILE, "a program gets the text as it is"
        me = (await client.get("/api/v1/me")).json()
        assert (me["name"], me["roles"]) == ("bea", ["admin"])


@virtual
async def test_what_does_not_fit_is_refused_with_a_reason(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        for path, status in (
            ("/api/v1/items?limit=0", 422), ("/api/v1/items?limit=many", 422), ("/api/v1/items?kind=joke", 422),
            ("/api/v1/items?color=red", 422), ("/api/v1/items?limit=1&limit=2", 400),
            ("/api/v1/items?after=nowhere", 409), ("/api/v1/items/nobody/step", 404),
            ("/api/v1/items/refund-ann/other", 409), ("/api/v1/runs/nobody", 404), ("/api/v1/nothing", 404),
        ):  # fmt: skip
            refused = await client.get(path)
            assert (path, refused.status_code, refused.headers["content-type"]) == (path, status, PROBLEM)
            assert refused.json()["detail"]
        broken = await client.post("/api/v1/answers", content=b'{"item":', headers={"content-type": "application/json"})
        assert broken.status_code == 400


@virtual
async def test_a_method_that_is_not_taken_is_answered_with_those_that_are(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        for method, path, allowed in (
            ("POST", "/api/v1/me", "GET, HEAD"),
            ("GET", "/api/v1/answers", "POST"),
            ("DELETE", "/api/v1/items", "GET, HEAD"),
            ("PUT", "/inbox", "GET, HEAD"),
            ("PUT", "/sign-in", "GET, HEAD, POST"),
            ("OPTIONS", "/inbox", "GET, HEAD, POST"),
        ):
            refused = await client.request(method, path, headers={"content-type": "application/json"})
            assert (method, path, refused.status_code, refused.headers.get("allow")) == (method, path, 405, allowed)


@pytest.mark.parametrize("deep", [200, 990, 5_000, 100_000])
@virtual
async def test_json_that_is_nested_deep_is_refused_wherever_json_is_taken(lab: Lab, deep: int):
    async with standing(lab) as stand, await stand.client("bea") as client:
        posts = [one for one in OPERATIONS if one.body is not None]
        assert posts
        nests = [
            b'{"x":' * deep,
            b'{"x":' * deep + b"1" + b"}" * deep,
            b'{"answer":' + b"[" * deep + b"]" * deep + b"}",
        ]
        for one in posts:
            for body in nests:
                refused = await client.post(ROOT + one.path, content=body, headers={"content-type": "application/json"})
                assert refused.status_code == 400, (one.path, body[:20])
        after = urlsafe_b64encode(b'{"x":' * min(deep, 5_000)).decode()
        assert (await client.get("/api/v1/items", params={"after": after})).status_code == 409


@virtual
async def test_every_answer_of_an_item_travels_over_the_wire(lab: Lab):
    async with standing(lab, begun=("ann", "ben", "cleo")) as stand, await stand.client("bea") as client:
        await _all_fit(stand, client)
    assert lab.sent == []


async def _all_fit(stand: Stand, client: httpx2.AsyncClient) -> None:
    soon = stand.lab.clock.wall_ms() + 3_600_000
    given: tuple[tuple[str, a.Answer], ...] = (
        ("refund-ann/refund#1", a.Escalate(to="eve")),
        ("refund-ann/refund#1", a.Delegate(queue="money")),
        ("refund-ann/refund#1", a.Snooze(until_ms=soon)),
        ("refund-ann/refund#1", a.AskBack("Why so much?")),
        ("refund-ben/refund#1", a.Decline("no")),
        ("trip-ann/ask#1", a.ReplyAnswer("Rome")),
        ("stock-ann/restock#1", a.HappenedAnswer("saw it", "shelf 3")),
        ("stock-ben/restock#1", a.DidNotHappenAnswer("give_up", "asked them")),
        ("stock-cleo/restock#1", a.Abandon("never mind")),
    )
    for item, answer in given:
        taken = await give(client, item, answer)
        assert taken.status_code == 200, (item, answer, taken.text)
