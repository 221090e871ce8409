"""A real server on loopback behind the guard, for the tests that attack it."""

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import httpx2
import msgspec
import uvicorn

from beforehand.errors import SignInRefused
from beforehand.webhooks.connections import SERVER
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, PermissionScope
from beforehand_console.auth.guard import Guard
from beforehand_console.auth.proxy import TrustedProxy
from beforehand_console.auth.site import Site, loopback, presented, session_cookie
from tests.unit.console.auth.keeping import House, opened

HERE = "192.0.2.7"
FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


class Inside:
    """The app behind the guard: it signs people in, and tells what reached it."""

    def __init__(self, authenticator: Authenticator) -> None:
        self.authenticator, self.reached = authenticator, list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(f"{scope['method']} {scope['path']}")
        body = (await receive())["body"]
        status, headers, answer = 200, [(b"x-frame-options", b"ALLOWALL")], b""
        principal = scope["principal"]
        if (scope["method"], scope["path"]) == ("POST", "/sign-in"):
            status, headers = await self._sign_in(scope, body)
        elif principal is not None:
            await self.authenticator.require(principal, "look", PermissionScope(scope["path"]))
            answer = msgspec.json.encode({"who": principal.name, "via": principal.via, "body": body.decode()})
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _sign_in(self, scope: Any, body: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
        said = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        old = presented(dict(scope["headers"]).get(b"cookie", b"").decode(), scope["origin"])
        try:
            begun = await self.authenticator.sign_in(said["name"], said["password"], scope["address"], old=old)
        except SignInRefused as no:
            return (429 if no.retry_after else 403), []
        return 303, [(b"set-cookie", session_cookie(scope["origin"], begun.secret).encode()), (b"location", b"/")]


@dataclass
class Stand:
    """A house with a server in front."""

    house: House
    authenticator: Authenticator
    inside: Inside
    port: int
    password: str
    client: httpx2.AsyncClient
    own: dict[str, str] = field(default_factory=dict[str, str])

    async def signed_in(self, name: str = "ben", client: httpx2.AsyncClient | None = None) -> dict[str, str]:
        """The headers of a browser in which that person is signed in, on a page of ours."""
        form = {"name": name, "password": self.password}
        answer = await (client or self.client).post("/sign-in", data=form, headers=self.own)
        assert answer.status_code == 303, answer.text
        (client or self.client).cookies.clear()  # each request says itself who asks
        return {**self.own, "cookie": answer.headers["set-cookie"].partition(";")[0]}

    async def raw(self, request: bytes) -> bytes:
        """The first line that a request of exactly these bytes is answered with."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        await writer.wait_closed()
        return line


@asynccontextmanager
async def standing(proxy: TrustedProxy | None = None, site: Callable[[int], Site] = loopback) -> AsyncGenerator[Stand]:
    house, password = await opened(), secrets.token_hex(12)
    await house.person("anna", password=password)
    await house.person("ben", Grant("answerer"), password=password)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        async with house.authenticator() as authenticator:
            inside = Inside(authenticator)
            guard = Guard(inside, authenticator, site(port), proxy=proxy)
            server = uvicorn.Server(uvicorn.Config(guard, lifespan="off", log_config=None, **SERVER))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            base = f"http://127.0.0.1:{port}"
            async with httpx2.AsyncClient(base_url=base, trust_env=False) as client:
                yield Stand(house, authenticator, inside, port, password, client, {"origin": base})
            server.should_exit = True
            await serving


def attacked(test: Callable[[Stand], Awaitable[None]], **given: Any) -> None:
    async def run() -> None:
        async with standing(**given) as stand:
            await test(stand)

    asyncio.run(run())
