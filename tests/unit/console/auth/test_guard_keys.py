"""The guard in front of a real server on loopback: sessions, tokens, a proxy, bodies, and when nothing can be known."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from beforehand.errors import NotAllowed
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.guard import LARGEST, LARGEST_OF_STRANGERS, Guard
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.site import Site, loopback
from tests.unit.console.auth.stand import FORM, HERE, JSON, Stand, attacked

# --- sessions and tokens ---------------------------------------------------------------------------------------------


def test_a_session_that_was_planted_opens_nothing_afterwards():
    async def told(stand: Stand) -> None:
        planted = {"cookie": f"beforehand-{stand.port}={'ab' * 32}"}
        form = {"name": "ben", "password": stand.password}
        answer = await stand.client.post("/sign-in", data=form, headers={**stand.own, **planted})
        assert answer.status_code == 303
        assert (await stand.client.get("/items", headers=planted)).status_code == 303
        own = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
        both = {"cookie": f"{own['cookie']}; {planted['cookie']}"}
        assert (await stand.client.get("/items", headers=both)).status_code == 303, "two of them are none"
        assert (await stand.client.get("/items", headers=own)).status_code == 200

    attacked(told)


def test_who_was_disabled_or_signed_out_is_out_at_once():
    async def told(stand: Stand) -> None:
        ben, anna = await stand.signed_in(), await stand.signed_in("anna")
        await stand.house.accounts.change("ben", AccountNote("disable", "anna"))
        assert (await stand.client.get("/items", headers=ben)).status_code == 303
        secret = anna["cookie"].partition("=")[2]
        principal = await stand.authenticator.by_session(secret)
        assert principal is not None
        await stand.authenticator.sign_out(secret, principal)
        assert (await stand.client.get("/items", headers=anna)).status_code == 303

    attacked(told)


def test_a_token_needs_no_origin_and_is_never_mixed_with_a_cookie():
    async def told(stand: Stand) -> None:
        token = {"authorization": f"Bearer {await stand.house.token('ben')}"}
        assert (await stand.client.post("/api/v1/x", headers=token, json={})).json()["via"] == "token"
        browser = await stand.signed_in("anna")
        assert (await stand.client.get("/items", headers={**browser, **token})).json()["who"] == "ben"
        for wrong in (
            "Bearer bh_" + "0" * 64,
            "Bearer",
            "Basic YW5uYTphbm5h",
            "",
            f"Token {token['authorization'][7:]}",
        ):
            answer = await stand.client.get("/api/v1/x", headers={**browser, "authorization": wrong})
            assert answer.status_code == 401, wrong
        await stand.house.accounts.change("ben", AccountNote("disable", "anna"))
        assert (await stand.client.get("/api/v1/x", headers=token)).status_code == 401

    attacked(told)


def test_guessing_over_the_network_ends_soon():
    async def told(stand: Stand) -> None:
        statuses = [
            (
                await stand.client.post("/sign-in", headers=stand.own, data={"name": "ben", "password": f"guess {i}"})
            ).status_code
            for i in range(8)
        ]
        assert statuses == [403] * 5 + [429] * 3
        right = {"name": "ben", "password": stand.password}
        forwarded = {**stand.own, "x-forwarded-for": "203.0.113.9"}
        assert (await stand.client.post("/sign-in", headers=forwarded, data=right)).status_code == 429
        whos = {one.access.address for one in await stand.authenticator.log.read()}
        assert whos == {"127.0.0.1"}, "what a stranger says about an address is not believed"

    attacked(told)


# --- bodies ----------------------------------------------------------------------------------------------------------


def test_bodies_have_the_form_and_the_size_that_is_expected():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        stand.inside.reached.clear()

        async def status(path: str, kind: str, body: bytes, headers: dict[str, str] = browser) -> int:
            return (await stand.client.post(path, headers={**headers, "content-type": kind}, content=body)).status_code

        assert await status("/api/x", "text/plain", b"{}") == 415
        assert await status("/api/x", "application/x-www-form-urlencoded", b"a=1") == 415
        assert await status("/items", "application/json", b"{}") == 415
        assert await status("/items", "multipart/form-data; boundary=x", b"--x--") == 415
        assert await status("/api/x", "", b"{}") == 415
        assert await status("/api/x", "application/json", b" " * (LARGEST + 1)) == 413
        assert await status("/sign-in", FORM["content-type"], b"a" * (LARGEST_OF_STRANGERS + 1), stand.own) == 413
        assert stand.inside.reached == []
        assert await status("/api/x", "Application/JSON; charset=utf-8", b"{}") == 200
        assert await status("/api/x", "application/json", b" " * LARGEST) == 200

    attacked(told)


def test_a_body_that_does_not_say_its_length_is_counted():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        stand.inside.reached.clear()

        async def endless() -> AsyncGenerator[bytes]:
            for _ in range(LARGEST // 65_536 + 2):
                yield b" " * 65_536

        answer = await stand.client.post("/api/x", headers={**browser, **JSON}, content=endless())
        assert answer.status_code == 413
        assert stand.inside.reached == []

    attacked(told)


# --- a proxy in front ------------------------------------------------------------------------------------------------


def test_a_proxy_names_people_and_a_program_beside_it_does_not():
    shown = secrets.token_urlsafe(24)

    async def told(stand: Stand) -> None:
        through = {"x-user": "ben", "x-beforehand-proxy": shown, "x-forwarded-for": "6.6.6.6, 203.0.113.9"}
        assert (await stand.client.get("/items", headers=through)).json() == {"who": "ben", "via": "proxy", "body": ""}
        assert (await stand.client.post("/items", headers={**through, **stand.own})).status_code == 200
        assert (await stand.client.post("/items", headers=through)).status_code == 403, "a proxy's word is ambient, too"
        forged: list[dict[str, str]] = [
            {"x-user": "ben"},
            {"x-user": "ben", "x-beforehand-proxy": "guess"},
            {"x-user": "nobody", "x-beforehand-proxy": shown},
            {"x-user": "", "x-beforehand-proxy": shown},
            {"x-user": "Ben", "x-beforehand-proxy": shown},
            {"x-beforehand-proxy": shown},
            {"x-user": "ben", "x-forwarded-for": "127.0.0.1"},
        ]
        stand.inside.reached.clear()
        for headers in forged:
            assert (await stand.client.get("/items", headers=headers)).status_code == 303, headers
        assert stand.inside.reached == []
        noted = {(one.access.why, one.access.address) for one in await stand.authenticator.log.read("-")}
        assert noted >= {
            ("not the proxy", "127.0.0.1"),
            ("another site", "203.0.113.9"),
            ("not signed in", "127.0.0.1"),
        }
        assert shown not in await stand.house.everything()

    attacked(told, proxy=TrustedProxy("X-User", ("127.0.0.1",), shown))


def test_behind_a_proxy_cookies_open_nothing():
    async def told(stand: Stand) -> None:
        begun = await stand.authenticator.sign_in("ben", stand.password, HERE)
        cookie = {"cookie": f"beforehand-{stand.port}={begun.secret}"}
        assert (await stand.client.get("/items", headers=cookie)).status_code == 303
        token = {"authorization": f"Bearer {await stand.house.token('ben')}"}
        assert (await stand.client.get("/items", headers=token)).status_code == 200

    attacked(told, proxy=TrustedProxy("x-user", ("192.0.2.1",)))


def test_with_tls_in_front_the_cookie_is_bound_to_the_host():
    async def told(stand: Stand) -> None:
        front = {"host": "inbox.example.com", "origin": "https://inbox.example.com"}
        form = {"name": "ben", "password": stand.password}
        answer = await stand.client.post("/sign-in", data=form, headers=front)
        assert answer.headers["set-cookie"].startswith("__Host-beforehand=")
        assert answer.headers["set-cookie"].endswith("; Secure")
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        assert (await stand.client.post("/sign-in", data=form, headers=stand.own)).status_code == 421

    attacked(told, site=lambda _: Site("https://inbox.example.com"))


# --- when it cannot be known -----------------------------------------------------------------------------------------


def test_without_the_journal_nobody_comes_in():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        stand.inside.reached.clear()
        await stand.house.journal.close()
        assert (await stand.client.get("/items", headers=browser)).status_code == 503
        assert (await stand.client.get("/api/x", headers=browser)).json()["error"] == "Refused"
        assert stand.inside.reached == []
        await stand.house.journal.open()

    attacked(told)


async def called(guard: Guard, stand: Stand, messages: list[dict[str, Any]], **headers: str) -> list[dict[str, Any]]:
    """What one POST is answered with, whose body comes in these messages and then no further."""
    sent = list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": f"127.0.0.1:{stand.port}", **stand.own, **FORM, **headers}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": "POST", "path": "/sign-in", "headers": pairs, "client": ("192.0.2.7", 1)}
    await guard(scope, receive, send)
    return sent


def test_a_body_that_breaks_off_or_never_ends_reaches_nobody():
    async def told(stand: Stand) -> None:
        guard = Guard(stand.inside, stand.authenticator, loopback(stand.port))
        begun = {"type": "http.request", "body": b"name=ben", "more_body": True}
        broken = await called(guard, stand, [begun, {"type": "http.disconnect"}])
        assert broken[0]["status"] == 400
        for length in ("-1", "1_0", "\u0661", "0x10", "9" * 5000):
            odd = await called(guard, stand, [begun], **{"content-length": length})
            assert odd[0]["status"] in (400, 413), length
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patched:
            patched.setattr("beforehand_console.auth.guard.PATIENCE_S", 0)
            assert (await called(guard, stand, [begun]))[0]["status"] == 408
        assert stand.inside.reached == []

    attacked(told)


@pytest.mark.parametrize(("error", "status"), [(ValueError("canary"), 500), (NotAllowed("ben may not"), 403)])
def test_what_the_app_lets_slip_is_answered_under_our_headers_and_says_nothing(error: Exception, status: int):
    async def told(stand: Stand) -> None:
        async def slips(scope: Any, receive: Any, send: Any) -> None:
            raise error

        sent = await called(Guard(slips, stand.authenticator, loopback(stand.port)), stand, [{"type": "http.request"}])
        assert sent[0]["status"] == status
        assert b"content-security-policy" in dict(sent[0]["headers"])
        assert b"canary" not in sent[1]["body"]

    attacked(told)


def test_an_answer_that_broke_off_is_not_answered_twice():
    async def told(stand: Stand) -> None:
        async def breaks(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise ValueError("in the middle")

        sent = await called(Guard(breaks, stand.authenticator, loopback(stand.port)), stand, [{"type": "http.request"}])
        assert [message["type"] for message in sent] == ["http.response.start"]

    attacked(told)


def test_a_websocket_is_not_opened():
    async def told(stand: Stand) -> None:
        sent = list[dict[str, Any]]()

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        guard = Guard(stand.inside, stand.authenticator, loopback(stand.port))
        await guard({"type": "websocket", "path": "/items", "headers": []}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]
        assert stand.inside.reached == []

    attacked(told)


def test_no_secret_of_anybody_is_written_down(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)

    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        token = await stand.house.token("ben")
        wrong = secrets.token_hex(12)
        await stand.client.get("/items", headers=browser)
        await stand.client.get(f"/items?secret={wrong}")
        await stand.client.get("/api/x", headers={"authorization": f"Bearer {token}"})
        await stand.client.post("/sign-in", headers=stand.own, data={"name": wrong, "password": wrong})
        await stand.client.post("/api/x", headers={**browser, **JSON, "origin": wrong}, content=wrong.encode())
        kept = await stand.house.everything() + "".join(
            record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))
        )
        for canary in (stand.password, browser["cookie"].partition("=")[2], token, token[3:], wrong):
            assert canary not in kept

    attacked(told)
