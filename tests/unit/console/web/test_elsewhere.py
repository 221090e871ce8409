"""Signing in at a provider through the pages, with a real provider on loopback; and where the page may listen."""

import asyncio
from urllib.parse import urlsplit

import httpx2
import pytest

from beforehand.control.service import ControlService
from beforehand.errors import UsageError
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.oidc import OidcClient, Provider
from beforehand_console.auth.site import loopback
from beforehand_console.web.app import web
from beforehand_console.web.server import PROVIDER_SECRET, ServerOptions
from beforehand_console.web.sign_in import OidcRoutes
from tests.unit.console.auth.keeping import opened
from tests.unit.console.auth.provider import CLIENT, CLIENT_SECRET, provided
from tests.unit.console.web.stand import ORIGIN


def test_a_browser_goes_to_the_provider_and_comes_back_signed_in():
    async def told() -> None:
        house = await opened()
        with provided(lambda: house.now.ms // 1000) as provider:
            known = Provider(provider.issuer, CLIENT, CLIENT_SECRET)
            await house.accounts.add("ben", [Grant("answerer")], by="root", subject=known.subject(provider.sub))
            async with house.authenticator() as authenticator:
                engine = authenticator._engine
                elsewhere = OidcRoutes(OidcClient(authenticator, engine, known))
                app = web(ControlService(engine), authenticator, loopback(80), elsewhere=elsewhere)
                transport = httpx2.ASGITransport(app)
                async with (
                    httpx2.AsyncClient(transport=transport, base_url=ORIGIN, trust_env=False) as browser,
                    httpx2.AsyncClient(trust_env=False) as outside,
                ):
                    asked = await browser.get("/sign-in", params={"next": "/runs?limit=5"})
                    assert '<a href="/sign-in/provider?next=/runs%3Flimit%3D5">' in asked.text
                    left = await browser.get("/sign-in/provider?next=/runs%3Flimit%3D5")
                    assert left.status_code == 303
                    sent_back = urlsplit((await outside.get(left.headers["location"])).headers["location"])
                    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
                    back = await browser.get(f"{sent_back.path}?{sent_back.query}", headers=link)
                    assert (back.status_code, back.headers["location"]) == (303, "/runs?limit=5")
                    assert list(browser.cookies) == ["beforehand-80"], "what it needed on the way is forgotten"
                    assert "ben" in (await browser.get("/runs?limit=5")).text
                    again = await browser.get(f"{sent_back.path}?{sent_back.query}", headers=link)
                    assert again.status_code == 401
                    assert "another browser" in again.text

    asyncio.run(told())


def test_where_no_provider_is_there_is_no_way_to_one():
    async def told() -> None:
        house = await opened()
        async with house.authenticator() as authenticator:
            app = web(ControlService(authenticator._engine), authenticator, loopback(80))
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, trust_env=False) as browser:
                assert "/sign-in/provider" not in (await browser.get("/sign-in")).text
                assert (await browser.get("/sign-in/provider")).status_code == 404

    asyncio.run(told())


def test_a_provider_takes_a_secret_that_is_no_argument(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(PROVIDER_SECRET, raising=False)
    where = ServerOptions(issuer="https://id.example.com")
    with pytest.raises(UsageError, match=PROVIDER_SECRET):
        _ = where.provider
    monkeypatch.setenv(PROVIDER_SECRET, CLIENT_SECRET)
    assert where.provider == Provider("https://id.example.com", "beforehand", CLIENT_SECRET)
    assert ServerOptions().provider is None


@pytest.mark.parametrize(
    "origins", [(), ("http://inbox.example.com",), ("https://inbox.example.com", "http://x.example")]
)
def test_others_reach_it_under_names_with_tls_only(origins: tuple[str, ...]):
    with pytest.raises(UsageError, match="--origin"):
        ServerOptions(host="0.0.0.0", origins=origins).site(8765)


def test_this_machine_reaches_it_under_its_own_names():
    assert ServerOptions().site(8765).origins[0] == "http://127.0.0.1:8765"
    assert ServerOptions(cert="chain.pem").site(8765).origins[0] == "https://127.0.0.1:8765"
    own = "https://inbox.example.com"
    assert ServerOptions(origins=(own,)).site(1).origins == (own,)
    assert ServerOptions(host="0.0.0.0", origins=(own,)).site(1).origins == (own,)


def test_a_proxy_may_only_say_from_where_people_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BEFOREHAND_PROXY_SECRET", raising=False)
    proxy = ServerOptions(proxy_peers=("10.0.0.5",)).proxy
    assert proxy is not None
    assert proxy.header == ""
    assert ServerOptions().proxy is None
    with pytest.raises(UsageError):
        _ = ServerOptions(proxy_header="x-user").proxy
