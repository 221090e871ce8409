"""The link of the terminal: for one browser, and only while no account exists."""

import httpx2

from beforehand.engine.environment import SystemRng
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.guard import Guard
from beforehand_console.auth.site import loopback
from beforehand_console.web.app import web
from beforehand_console.web.sign_in import BootstrapLink
from tests.unit.console.web.stand import ORIGIN, Stand, standing
from tests.unit.engine.lab import Lab, virtual


def linked(stand: Stand, shown: list[str]) -> Guard:
    link = BootstrapLink(stand.authenticator, "ann", SystemRng(), shown.append)
    link.show()
    return web(stand.app.service, stand.authenticator, loopback(80), link=link)


def browser(guard: Guard) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(guard), base_url=ORIGIN, trust_env=False)


@virtual
async def test_whoever_came_in_by_the_link_is_out_with_the_first_account(lab: Lab):
    shown: list[str] = []
    async with standing(lab) as stand, browser(linked(stand, shown)) as first:
        assert (await first.get(shown[-1])).headers["location"] == "/inbox"
        assert (await first.get("/inbox")).status_code == 200
        await stand.authenticator.accounts.add("bea", [Grant("viewer")], by="root")
        out = await first.get("/inbox")
        assert (out.status_code, out.headers["location"]) == (303, "/sign-in?next=/inbox")
        assert (await first.get("/api/v1/items")).status_code == 401
        await stand.authenticator.accounts.change("bea", AccountNote("disable", "root"))
        assert (await first.get("/inbox")).status_code == 303, "what ended stays ended"


@virtual
async def test_the_link_opens_nothing_once_people_have_accounts(lab: Lab):
    shown: list[str] = []
    async with standing(lab) as stand, browser(linked(stand, shown)) as late:
        await stand.authenticator.accounts.add("bea", [Grant("viewer")], by="root")
        refused = await late.get(shown[-1])
        assert refused.status_code == 401
        assert "this journal has accounts now" in refused.text
        assert "set-cookie" not in refused.headers
        assert len(shown) == 1, "no other link is offered either"
