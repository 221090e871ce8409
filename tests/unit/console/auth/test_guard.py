"""The guard in front of a real server on loopback, attacked by strangers and by pages elsewhere."""

import secrets

import pytest

from beforehand_console.auth.rate_limits import PER_ACCOUNT
from tests.unit.console.auth.stand import Stand, attacked


def test_a_person_signs_in_looks_and_acts():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        looked = await stand.client.get("/items", headers=browser)
        assert looked.json() == {"who": "ben", "via": "password", "body": ""}
        acted = await stand.client.post("/items", headers=browser, data={"word": "yes"})
        assert acted.json()["body"] == "word=yes"
        assert (await stand.client.put("/api/v1/x", headers=browser, json={"a": 1})).json()["body"] == '{"a":1}'

    attacked(told)


def test_every_answer_carries_the_headers_whatever_the_app_says():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        for path, headers in (
            ("/items", browser),
            ("/items", {}),
            ("/api/x", {}),
            ("/items", {"host": "evil.example"}),
        ):
            answer = await stand.client.get(path, headers=headers)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
            assert "access-control-allow-origin" not in answer.headers

    attacked(told)


# --- strangers -------------------------------------------------------------------------------------------------------


def test_a_stranger_is_sent_to_sign_in_or_told_to():
    async def told(stand: Stand) -> None:
        page = await stand.client.get("/items/r-1%2Frefund%231?x=1&y=//evil.example")
        assert page.status_code == 303
        assert page.headers["location"] == "/sign-in?next=/items/r-1/refund%231%3Fx%3D1%26y%3D//evil.example"
        for method, path in (("GET", "/api/v1/items"), ("POST", "/items"), ("DELETE", "/api/v1/items")):
            answer = await stand.client.request(method, path, headers=stand.own)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert stand.inside.reached == []
        assert (await stand.client.get("/sign-in")).status_code == 200
        assert (await stand.client.get("/static/page.css")).status_code == 200

    attacked(told)


LIKE_OPEN = (
    "/Sign-in", "/sign-in/", "//sign-in", "/sign-in/../items", "/sign-in;/items", "/static", "/staticky/x",
    "/./sign-in", "/%2e/sign-in", "/api/../static/x", "/items/static/", "/sign-in%00", "/%2fstatic/x",
)  # fmt: skip


def test_a_path_that_looks_open_is_not():
    async def told(stand: Stand) -> None:
        for path in LIKE_OPEN:
            request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{stand.port}\r\nConnection: close\r\n\r\n"
            line = await stand.raw(request.encode())
            assert line.split()[1] in (b"303", b"401"), (path, line)
        assert stand.inside.reached == []

    attacked(told)


def test_what_strangers_try_is_recorded_without_filling_the_record():
    async def told(stand: Stand) -> None:
        for i in range(20):
            await stand.client.get(f"/items/{i}")
            await stand.client.get(f"/api/{i}", headers={"authorization": f"Bearer {secrets.token_hex(32)}"})
            await stand.client.post("/items", headers={"origin": "https://evil.example"})
        whys = [one.access.why for one in await stand.authenticator.log.read("-")]
        assert sorted(whys) == ["another site", "no such token", "not signed in"]

    attacked(told)


def test_an_account_that_floods_is_told_to_wait_and_its_browser_goes_on():
    async def told(stand: Stand) -> None:
        house, browser = stand.house, await stand.signed_in()
        token = {"authorization": f"Bearer {await house.token('ben')}"}
        for _ in range(PER_ACCOUNT.burst):
            assert (await stand.client.post("/api/v1/answers", headers=token, json={})).status_code == 200
        reached = len(stand.inside.reached)
        for path, kind in (("/api/v1/answers", "application/problem+json"), ("/items", "text/plain; charset=utf-8")):
            answer = await stand.client.post(path, headers=token, json={})
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            assert answer.headers["content-type"] == kind
        assert len(stand.inside.reached) == reached
        assert (await stand.client.get("/api/v1/items", headers=token)).status_code == 200
        assert (await stand.client.post("/items", headers=browser, data={"word": "yes"})).status_code == 200
        house.now.ms += PER_ACCOUNT.every_ms
        assert (await stand.client.post("/api/v1/answers", headers=token, json={})).status_code == 200
        assert (await stand.client.post("/api/v1/answers", headers=token, json={})).status_code == 429
        (refused,) = [one.access for one in await stand.authenticator.log.read("ben") if not one.access.allowed]
        assert (refused.why, refused.via) == ("too many requests", "token")

    attacked(told)


# --- other sites -----------------------------------------------------------------------------------------------------


ELSEWHERE: list[dict[str, str]] = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost:{port}"},  # ours too, but not the one that was asked for
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:{port}"},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:{port}"},
    {"referer": "http://127.0.0.1:{port}/items"},
    {},
]
BODIES = {"text/plain": b'{"a":1}', "application/json": b"{}", "application/x-www-form-urlencoded": b"a=1"}


@pytest.mark.parametrize("path", ["/items", "/api/v1/items", "/sign-in"])
def test_a_page_elsewhere_does_nothing_with_the_cookie_of_its_visitor(path: str):
    async def told(stand: Stand) -> None:
        cookie = (await stand.signed_in())["cookie"]
        stand.inside.reached.clear()
        for said in ELSEWHERE:
            headers = {name: value.format(port=stand.port) for name, value in said.items()} | {"cookie": cookie}
            for kind, body in BODIES.items():
                answer = await stand.client.post(path, headers={**headers, "content-type": kind}, content=body)
                assert answer.status_code == 403, (said, kind)
            assert (await stand.client.request("DELETE", path, headers=headers)).status_code == 403, said
        assert stand.inside.reached == []

    attacked(told)


def test_a_page_elsewhere_reads_and_embeds_nothing_but_may_link():
    async def told(stand: Stand) -> None:
        cookie = {"cookie": (await stand.signed_in())["cookie"], "sec-fetch-site": "cross-site"}
        embedded = {**cookie, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        read = {**cookie, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
        for headers in (embedded, read):
            assert (await stand.client.get("/items", headers=headers)).status_code == 403
        link = {**cookie, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert (await stand.client.get("/items", headers=link)).status_code == 200
        asked = await stand.client.request(
            "OPTIONS", "/api/v1/x", headers={**cookie, "access-control-request-method": "PUT"}
        )
        assert asked.status_code == 405

    attacked(told)


def test_a_name_that_was_made_to_lead_here_finds_nothing():
    async def told(stand: Stand) -> None:
        browser = await stand.signed_in()
        stand.inside.reached.clear()
        for host in ("evil.example", "127.0.0.1", "localhost", "", f"127.0.0.1:{stand.port}.evil.example"):
            for path in ("/items", "/sign-in", "/static/x", "/api/v1/x"):
                assert (await stand.client.get(path, headers={**browser, "host": host})).status_code == 421, host
        assert stand.inside.reached == []

    attacked(told)


TWICE = (
    "Host: evil.example", "Authorization: Bearer x\r\nAuthorization: Bearer y", "Content-Type: text/plain",
    "Origin: https://evil.example", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site",
)  # fmt: skip


def test_what_two_readers_would_understand_in_two_ways_is_refused():
    async def told(stand: Stand) -> None:
        for twice in TWICE:
            lines = (
                "POST /sign-in HTTP/1.1", f"Host: 127.0.0.1:{stand.port}", f"Origin: http://127.0.0.1:{stand.port}",
                "Content-Type: application/x-www-form-urlencoded", "Content-Length: 0", twice, "", "",
            )  # fmt: skip
            assert (await stand.raw("\r\n".join(lines).encode())).split()[1] == b"400", twice
        assert stand.inside.reached == []

    attacked(told)
