"""The web face as a browser meets it: a real server on loopback, over a journal on the disk, with a clock to move."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import uvicorn

from beforehand import Beforehand
from beforehand.engine.environment import DaemonThreads, Environment, NoCrash, SystemRng
from beforehand.errors import RunSuspended
from beforehand.journal.host import JournalClock, boot_id, uptime_ms
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.people import Policy
from beforehand.webhooks.connections import SERVER
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.site import loopback
from beforehand_console.web.app import web
from tests.unit.console.auth.keeping import Counting

T = TypeVar("T")
PASSWORD = "correct horse battery"


class MovableClock:
    """The machine's clock, some way ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Served:
    """A server in a thread of its own: the browser's driver needs this one."""

    def __init__(self, path: Path, agents: list[Any], policy: Policy | None = None) -> None:
        self.clock = MovableClock()
        self.address = ""
        self._path, self._agents, self._policy = path, agents, policy
        self._loop = asyncio.new_event_loop()
        self._ready: Future[None] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    def do(self, what: Callable[[Beforehand], Coroutine[Any, Any, T]]) -> T:
        """Let something happen in the server's process."""
        return asyncio.run_coroutine_threadsafe(what(self.app), self._loop).result(timeout=30)

    def begin(self, agent: Any, given: Any) -> None:
        """Start a run that will ask a person."""

        async def until_it_asks(app: Beforehand) -> None:
            try:
                await app.run(agent, given)
            except RunSuspended:
                return
            raise AssertionError("no person was asked")

        self.do(until_it_asks)

    def go_on(self, run: str) -> Any:
        return self.do(lambda app: app.resume(run))

    def records(self, run: str) -> list[Any]:
        async def read(app: Beforehand) -> list[Any]:
            return [record async for _, record in app.service.reader.records(run)]

        return self.do(read)

    def person(self, name: str, *grants: Grant) -> None:
        """An account with a password."""

        async def add(_: Beforehand) -> None:
            await self.authenticator.accounts.add(name, grants or [Grant("admin")], by="root")
            hashed = Passwords(Counting()).hashed(PASSWORD, name)
            await self.authenticator.accounts.change(name, AccountNote("password", "root", hash=hashed))

        self.do(add)

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        environment = Environment(self.clock, SystemRng(), DaemonThreads(), NoCrash())
        with socket.create_server(("127.0.0.1", 0)) as place:
            port = place.getsockname()[1]
            clock = JournalClock(boot_id(), uptime_ms, self.clock.wall_ms)
            app = Beforehand(
                SqliteJournal(self._path, clock=clock),
                agents=self._agents,
                policy=self._policy,
                environment=environment,
                recover=False,
            )
            async with app as self.app:
                self.authenticator = Authenticator(self.app.engine, Passwords(Counting()))
                guarded = web(self.app.service, self.authenticator, loopback(port))
                server = uvicorn.Server(uvicorn.Config(guarded, lifespan="off", log_config=None, **SERVER))
                serving = asyncio.create_task(server.serve(sockets=[place]))
                self.address = f"http://127.0.0.1:{port}"
                self._ready.set_result(None)
                await self._over.wait()
                server.should_exit = True
                await serving
