"""Signing in at a provider: a real one on loopback, and one that breaks a rule at a time."""

import asyncio
import base64
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import ECKey

from beforehand.errors import SignInRefused, UsageError
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.oidc import AWAY_MS, OidcClient, Provider
from beforehand_console.auth.rate_limits import PER_ADDRESS
from tests.unit.console.auth.keeping import House, opened
from tests.unit.console.auth.provider import CLIENT, CLIENT_SECRET, RealProvider, provided

HERE, OWN = "192.0.2.7", "https://inbox.example.com"


@dataclass
class Browser:
    """A browser between us and the provider."""

    house: House
    authenticator: Authenticator
    provider: RealProvider
    openid: OidcClient
    cookie: str = ""

    async def go(self, wanted: str = "/items") -> str:
        """Leave for the provider, and come to the address that it sends the browser back to: its query."""
        leaving = await self.openid.leave(OWN, wanted)
        self.cookie = leaving.cookie.partition(";")[0]
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(leaving.url)
        back = urlsplit(answer.headers["location"])
        assert f"{back.scheme}://{back.netloc}{back.path}" == f"{OWN}/sign-in/provider/back"
        return back.query

    async def come(self, query: str, cookie: str | None = None, origin: str = OWN) -> Any:
        return await self.openid.come_back(query, self.cookie if cookie is None else cookie, origin, HERE)

    async def is_refused(self, query: str, cookie: str | None = None, origin: str = OWN) -> str:
        with pytest.raises(SignInRefused) as no:
            await self.come(query, cookie, origin)
        assert not [one for one in await self.house.journal.entries("sessions/") if one.key == "begin"]
        return no.value.message


def browsing(test: Callable[[Browser], Awaitable[None]]) -> None:
    async def run() -> None:
        house = await opened()
        with provided(lambda: house.now.ms // 1000) as provider:
            known = Provider(provider.issuer, CLIENT, CLIENT_SECRET)
            await house.accounts.add("ben", [Grant("answerer")], by="root", subject=known.subject(provider.sub))
            async with house.authenticator() as authenticator:
                openid = OidcClient(authenticator, authenticator._engine, known)
                await test(Browser(house, authenticator, provider, openid))

    asyncio.run(run())


def test_whom_the_provider_names_is_in_and_goes_on_where_they_wanted():
    async def told(browser: Browser) -> None:
        returned = await browser.come(await browser.go("/items/r-1?x=1"))
        assert returned.wanted == "/items/r-1?x=1"
        principal = await browser.authenticator.by_session(returned.begun.secret)
        assert principal is not None
        assert (principal.name, principal.via) == ("ben", "oidc")
        assert browser.cookie.startswith("__Host-beforehand-away=")
        kept = await browser.house.everything()
        assert CLIENT_SECRET not in kept
        assert CLIENT_SECRET not in repr(browser.openid._provider)
        assert (await browser.come(await browser.go("//evil.example"))).wanted == "/"

    browsing(told)


def test_an_address_that_came_back_is_good_once():
    async def told(browser: Browser) -> None:
        query = await browser.go()
        assert (await browser.come(query)).begun.principal.name == "ben"
        with pytest.raises(SignInRefused, match="used before"):
            await browser.come(query)

    browsing(told)


def test_a_sign_in_that_began_elsewhere_is_not_ended_here():
    async def told(browser: Browser) -> None:
        planted, own = await browser.go(), browser.cookie
        fresh = await browser.go()
        for query, cookie, origin in (
            (planted, browser.cookie, OWN),
            (fresh, own, OWN),
            (fresh, "", OWN),
            (fresh, f"{browser.cookie}; {own}", OWN),
            (fresh, browser.cookie, "https://other.example.com"),
            (fresh, browser.cookie.replace("__Host-", ""), OWN),
            (fresh + "&state=x", browser.cookie, OWN),
            (fresh.replace("code=", "error="), browser.cookie, OWN),
            (fresh.replace("iss=http", "iss=https"), browser.cookie, OWN),
            ("", browser.cookie, OWN),
        ):
            await browser.is_refused(query, cookie, origin)
        assert (await browser.come(fresh)).begun.principal.name == "ben", "none of that used it up"

    browsing(told)


def test_the_cookie_cannot_be_rewritten():
    async def told(browser: Browser) -> None:
        query = await browser.go()
        name, _, value = browser.cookie.partition("=")
        body, _, seal = value.partition(".")
        away = json.loads(base64.urlsafe_b64decode(body))
        changed = base64.urlsafe_b64encode(json.dumps({**away, "wanted": "//evil.example"}).encode()).decode()
        for forged in (f"{changed}.{seal}", f"{body}.", body, ".", "", f"{body}.{seal}0", f"{body}.é"):
            await browser.is_refused(query, f"{name}={forged}")
        browser.house.now.ms += AWAY_MS
        assert "too long" in await browser.is_refused(query)

    browsing(told)


def test_who_has_no_account_here_is_on_record_and_not_in():
    async def told(browser: Browser) -> None:
        browser.provider.sub = "somebody-else"
        assert "no account here is linked to this sign-in" in await browser.is_refused(await browser.go())
        (noted,) = await browser.authenticator.log.read("-")
        assert noted.access.why == f"no account is {browser.provider.issuer}#somebody-else"
        browser.provider.sub = "248289761001"
        await browser.house.accounts.change("ben", AccountNote("disable", "root"))
        await browser.is_refused(await browser.go())
        await browser.house.accounts.change("ben", AccountNote("enable", "root"))
        subject = f"{browser.provider.issuer}#248289761001"
        await browser.house.accounts.add("eve", [Grant("admin")], by="root", subject=subject)
        assert "no account" in await browser.is_refused(await browser.go()), "two accounts are none"

    browsing(told)


def _plain(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _unsigned(token: str) -> str:
    return ".".join((_plain(json.dumps({"alg": "none"}).encode()), token.split(".")[1], ""))


def _with_public_key(provider: RealProvider) -> Callable[[str], object]:
    """What everybody knows, the public key, taken for a secret that only the provider and we have."""

    def signed(token: str) -> str:
        text = f"{_plain(json.dumps({'alg': 'HS256', 'kid': 'one'}).encode())}.{token.split('.')[1]}"
        return f"{text}.{_plain(hmac.digest(provider.key.as_bytes(private=False), text.encode(), 'sha256'))}"

    return signed


WRONG: dict[str, Callable[[RealProvider], None]] = {
    "another nonce": lambda it: it.claims.update(nonce="another"),
    "no nonce": lambda it: it.claims.update(nonce=None),
    "nonces": lambda it: it.claims.update(nonce=["a", "b"]),
    "another audience": lambda it: it.claims.update(aud="another"),
    "no audience": lambda it: it.claims.update(aud=None),
    "audiences without azp": lambda it: it.claims.update(aud=[CLIENT, "another"]),
    "another azp": lambda it: it.claims.update(aud=[CLIENT, "another"], azp="another"),
    "another issuer": lambda it: it.claims.update(iss="https://evil.example"),
    "issuer with a slash": lambda it: it.claims.update(iss=it.issuer + "/"),
    "ended": lambda it: it.claims.update(exp=it.now_s() - 61),
    "never ends": lambda it: it.claims.update(exp=None),
    "from tomorrow": lambda it: it.claims.update(iat=it.now_s() + 86_400),
    "no sub": lambda it: it.claims.update(sub=None),
    "empty sub": lambda it: it.claims.update(sub=""),
    "long sub": lambda it: it.claims.update(sub="9" * 256),
    "hidden sub": lambda it: it.claims.update(sub="248289761001\u200b"),
    "a number": lambda it: it.claims.update(sub=248289761001),
    "another key": lambda it: setattr(it, "signs_with", ECKey.generate_key("P-256", {"kid": "one"})),
    "the public key as a secret": lambda it: setattr(it, "token", _with_public_key(it)),
    "unsigned": lambda it: setattr(it, "token", _unsigned),
    "cut": lambda it: setattr(it, "token", lambda token: token[:-4]),
    "no token": lambda it: setattr(it, "token", lambda _: None),
    "a list": lambda it: setattr(it, "token", lambda token: [token]),
    "a secret of another": lambda it: it.says.update(issuer="https://evil.example"),
    "an address in clear": lambda it: it.says.update(token_endpoint="http://192.0.2.9/token"),
    "an address of a file": lambda it: it.says.update(jwks_uri="file:" + "//etc/passwd"),
    "no keys": lambda it: it.says.update(jwks_uri=None),
}  # fmt: skip


@pytest.mark.parametrize("rule", WRONG)
def test_a_provider_that_breaks_a_rule_lets_nobody_in(rule: str):
    async def told(browser: Browser) -> None:
        query = await browser.go()
        WRONG[rule](browser.provider)
        await browser.is_refused(query)

    browsing(told)


def test_several_audiences_are_right_where_it_says_that_it_is_for_us():
    async def told(browser: Browser) -> None:
        browser.provider.claims.update(aud=[CLIENT, "another"], azp=CLIENT)
        assert (await browser.come(await browser.go())).begun.principal.name == "ben"

    browsing(told)


def test_a_code_of_somebody_else_is_refused_by_the_provider():
    """Who caught another browser's code has no verifier for it."""

    async def told(browser: Browser) -> None:
        caught = parse_qs(await browser.go())["code"][0]
        mine = await browser.go()
        await browser.is_refused(mine.replace(parse_qs(mine)["code"][0], caught))
        assert browser.provider.refused == [caught]

    browsing(told)


def test_a_provider_that_is_out_of_reach_lets_nobody_in():
    async def told(browser: Browser) -> None:
        gone = OidcClient(
            browser.authenticator, browser.authenticator._engine, Provider("http://127.0.0.1:9", CLIENT, CLIENT_SECRET)
        )
        with pytest.raises(SignInRefused, match="could not be reached"):
            await gone.leave(OWN, "/")

    browsing(told)


def test_coming_back_again_and_again_is_limited():
    async def told(browser: Browser) -> None:
        for _ in range(PER_ADDRESS.burst):
            assert "too many" not in await browser.is_refused("code=x&state=y")
        assert "too many" in await browser.is_refused("code=x&state=y")

    browsing(told)


@pytest.mark.parametrize("issuer", ["http://id.example.com", "id.example.com", "ftp://id.example.com", ""])
def test_a_provider_is_reached_over_tls(issuer: str):
    with pytest.raises(UsageError):
        Provider(issuer, CLIENT, CLIENT_SECRET)
