"""A small OpenID Connect provider on loopback: it keeps the rules, except where a test lets it break one."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key, KeySet

CLIENT, CLIENT_SECRET = "beforehand", "a client's secret & more"


class RealProvider:
    """It lets everybody in as `sub`, gives a code once, and checks client, redirect address and PKCE."""

    def __init__(self, issuer: str, now_s: Callable[[], int]) -> None:
        self.issuer, self.now_s, self.sub = issuer, now_s, "248289761001"
        self.key: Key = ECKey.generate_key("P-256", {"kid": "one"})
        self.signs_with: Key = self.key
        self.claims: dict[str, object] = {}  # instead of the right ones
        self.says: dict[str, object] = {}  # instead of what is right about itself
        self.header: dict[str, Any] = {"alg": "ES256", "kid": "one"}
        self.token: Callable[[str], object] = lambda token: token
        self.given: dict[str, dict[str, str]] = {}
        self.refused = list[str]()

    def metadata(self) -> dict[str, object]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
        return {
            "issuer": self.issuer,
            **{name: f"{self.issuer}/{place}" for name, place in places.items()},
            **self.says,
        }

    def authorize(self, asked: dict[str, str]) -> str:
        assert (asked["response_type"], asked["client_id"], asked["scope"]) == ("code", CLIENT, "openid")
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.given)}"
        self.given[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.issuer})}"

    def exchange(self, authorization: str, asked: dict[str, str]) -> dict[str, object] | None:
        wanted = self.given.pop(asked.get("code", ""), None)
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        client = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if (
            wanted is None
            or authorization != f"Basic {client}"
            or wanted["redirect_uri"] != asked["redirect_uri"]
            or wanted["code_challenge"] != base64.urlsafe_b64encode(digest).decode().rstrip("=")
        ):
            self.refused.append(asked.get("code", ""))
            return None
        now = self.now_s()
        right = {
            "iss": self.issuer,
            "sub": self.sub,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": wanted["nonce"],
        }
        claims = {name: value for name, value in {**right, **self.claims}.items() if value is not None}
        token = jwt.encode(self.header, claims, self.signs_with, algorithms=[self.header["alg"]])
        return {"access_token": "unused", "token_type": "Bearer", "id_token": self.token(token)}


def _handler(provider: RealProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            if url.path == "/.well-known/openid-configuration":
                self._say(200, provider.metadata())
            elif url.path == "/jwks":
                self._say(200, KeySet([provider.key]).as_dict())
            else:
                self.send_response(302)
                self.send_header("Location", provider.authorize(asked))
                self.send_header("Content-Length", "0")
                self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked = {name: values[0] for name, values in parse_qs(body).items()}
            given = provider.exchange(self.headers["Authorization"], asked)
            self._say(400 if given is None else 200, given or {"error": "invalid_grant"})

        def _say(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing on the test's own output."""

    return Handler


@contextmanager
def provided(now_s: Callable[[], int]) -> Generator[RealProvider]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        provider = RealProvider(f"http://127.0.0.1:{server.server_address[1]}", now_s)
        server.RequestHandlerClass = _handler(provider)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
