"""Signed links of notices on the page: they show the way, and answer nothing by being opened."""

import asyncio
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec.structs import replace

from beforehand.inspect.signing_keys import keep_keys
from beforehand.journal.port import Posts
from beforehand.people.loaded_item import load_item
from beforehand_console import Link, LinkRefused, SigningKeys
from beforehand_console.auth.authorize import Grant
from beforehand_console.links import checked_unused, make_link
from beforehand_console.web.signed_links import LinkRoutes
from beforehand_console.web.use_cases import UseCases
from tests.commits import Commit, intercept
from tests.unit.console.web.stand import ORIGIN, Stand, standing
from tests.unit.engine.lab import Lab, virtual

REFUND = "refund-ann/refund#1"
HOUR = 3_600_000
LINK_KEYS = SigningKeys((os.urandom(32).hex(),))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFOREHAND_LINK_KEY", LINK_KEYS.keys[0])


async def link_of(
    stand: Stand, item: str = REFUND, *, keys: SigningKeys = LINK_KEYS, lasts_ms: int = HOUR
) -> tuple[str, Link]:
    """The path of a link as a notice has it."""
    now = await load_item(stand.app.service.reader, item)
    link = Link(item, now.digest, "ann@example.com", stand.authenticator.now_ms + lasts_ms, "id1")
    return urlsplit(make_link(ORIGIN, keys, link)).path, link


async def used(stand: Stand, link: Link) -> bool:
    """Whether an answer was given through it."""
    try:
        await checked_unused(stand.app.engine.journal, link)
    except LinkRefused:
        return True
    return False


async def forms(client: httpx2.AsyncClient, path: str) -> tuple[str, dict[str, str]]:
    """The item's page behind a link, and what its forms send besides the answer."""
    sent_on = await client.get(path)
    assert (sent_on.status_code, sent_on.headers["referrer-policy"]) == (303, "same-origin")
    page = await client.get(sent_on.headers["location"])
    assert page.status_code == 200
    hidden = dict(re.findall(r'<input type="hidden" name="(shown|link)" value="([^"]+)"', page.text))
    return page.url.raw_path.decode().partition("?")[0], hidden


@virtual
async def test_a_link_leads_to_its_item_and_its_first_answer_uses_it_up(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        path, link = await link_of(stand)
        for _ in range(3):
            where, hidden = await forms(client, path)
        assert where == "/inbox/refund-ann/refund%231"
        assert not await used(stand, link), "looking uses nothing up"
        given = await client.post(where, data={"type": "approve", "hours": "1", **hidden})
        assert given.status_code == 303, given.text
        assert await used(stand, link)
        again = await client.get(path)
        assert (again.status_code, "was answered, or has changed" in again.text) == (409, True)


@virtual
async def test_a_second_answer_through_the_same_link_is_refused_also_one_that_ends_nothing(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        path, _ = await link_of(stand)
        where, hidden = await forms(client, path)
        handed = {"type": "delegate", "to": "cid", **hidden}
        assert (await client.post(where, data=handed)).status_code == 303
        refused = await client.post(where, data={**handed, "to": "dan"})
        assert (refused.status_code, "before, by bea" in refused.text) == (409, True)
        assert (await client.get(path)).status_code == 409
        assert (await client.get(where)).status_code == 200, "the item itself is answered as ever"


@virtual
async def test_a_link_is_no_identity(lab: Lab):
    async with standing(lab) as stand, stand.stranger() as scanner:
        path, link = await link_of(stand)
        fetched = await scanner.get(path, headers={"accept": "text/html"})
        assert fetched.status_code in {303, 401}
        assert "9000" not in fetched.text
        posted = await scanner.post(
            "/inbox/refund-ann/refund%231", data={"type": "approve", "hours": "1", "link": path, "shown": link.digest}
        )
        assert posted.status_code in {303, 401, 403}
        assert not await used(stand, link)
        assert lab.sent == []


@virtual
async def test_a_link_is_good_for_its_item_as_it_was_asked_until_its_end(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        forged, _ = await link_of(stand, keys=SigningKeys(("x" * 32,)))
        ended, _ = await link_of(stand, lasts_ms=0)
        for path in (forged, ended, "/links/nothing"):
            assert (await client.get(path)).status_code == 409
        path, _ = await link_of(stand)
        _, hidden = await forms(client, path)
        page = await client.get("/inbox/mail-ann/send_mail%231")
        shown = re.findall(r'name="shown" value="(\w+)"', page.text)[0]
        other = {"type": "approve", "hours": "1", "link": hidden["link"], "shown": shown}
        refused = await client.post("/inbox/mail-ann/send_mail%231", data=other)
        assert (refused.status_code, "about something else" in refused.text) == (409, True), refused.text


@virtual
async def test_keys_beside_the_journal_are_read_when_they_are_wanted(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("BEFOREHAND_LINK_KEY")
    async with standing(lab) as stand:
        engine = stand.app.engine
        engine.identity = replace(engine.identity, file=tmp_path / "desk.db")  # as one in a file
        keep_keys(tmp_path / "desk.db.linkkeys", LINK_KEYS)
        links = LinkRoutes(UseCases(stand.app.service, stand.authenticator))
        path, link = await link_of(stand)
        assert links._read(path.rpartition("/")[2]) == link


@virtual
async def test_an_answer_that_is_refused_uses_no_link_up(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        path, link = await link_of(stand)
        where, hidden = await forms(client, path)
        for wrong in (
            {"hours": "0"},
            {"type": "edit", "arguments": '{"cents": "many", "note": ""}'},
            {"type": "happened"},
        ):
            refused = await client.post(where, data={"type": "approve", "hours": "1", **wrong, **hidden})
            assert refused.status_code == 409
        async with await stand.client("vic", Grant("viewer")) as viewer:
            assert (await viewer.post(where, data={"type": "approve", "hours": "1", **hidden})).status_code == 403
        assert not await used(stand, link)
        assert (await client.post(where, data={"type": "approve", "hours": "1", **hidden})).status_code == 303
        assert await used(stand, link)


@virtual
async def test_of_two_answers_through_one_link_at_once_one_is_taken(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """Handing over ends nothing, so that only the link stands between the two."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        path, _ = await link_of(stand)
        where, hidden = await forms(client, path)
        journal, both = stand.app.engine.journal, asyncio.Barrier(2)

        async def together(posts: Posts, commit: Commit) -> object:
            """Neither is committed before both have found the link unused."""
            await both.wait()
            return await commit(posts)

        intercept(journal, Posts, together)
        told = await asyncio.gather(
            *(client.post(where, data={"type": "delegate", "to": to, **hidden}) for to in ("cid", "dan"))
        )
        assert sorted(one.status_code for one in told) == [303, 409]
        assert len(await stand.app.engine.journal.entries("items/")) == 1


@virtual
async def test_a_link_that_was_sent_to_an_account_is_good_for_that_account(lab: Lab):
    async with standing(lab) as stand:
        path, link = await link_of(stand)
        await stand.authenticator.accounts.add("bea", [Grant("admin")], by="root")
        bea = await stand.signed_in("bea")
        assert (await bea.get(path)).status_code == 303, "no account exists of that name: it went to a mailbox"
        await stand.authenticator.accounts.add("ann@example.com", [Grant("answerer")], by="root")
        ann = await stand.signed_in("ann@example.com")
        stolen = await bea.get(path)
        assert (stolen.status_code, "was sent to another person" in stolen.text) == (409, True)
        where, hidden = await forms(ann, path)
        refused = await bea.post(where, data={"type": "approve", "hours": "1", **hidden})
        assert (refused.status_code, "was sent to another person" in refused.text) == (409, True)
        assert not await used(stand, link)
        assert (await ann.post(where, data={"type": "approve", "hours": "1", **hidden})).status_code == 303
