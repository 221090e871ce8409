"""Runs the services of each side on loopback ports that the system chooses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Mapping

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from holdfast.demo.addresses import LOOPBACK, Addresses
from holdfast.demo.services.http import DroppableConnection
from holdfast.demo.services.mail import DemoMail
from holdfast.demo.services.payments import DemoPayments
from holdfast.demo.services.tracker import Tracker
from holdfast.demo.services.warehouse import Warehouse
from holdfast.demo.world import DemoWorld


class AnnouncedServer(uvicorn.Server):
    """A server that announces when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@contextlib.asynccontextmanager
async def serving(worlds: Mapping[str, DemoWorld]) -> AsyncGenerator[dict[str, Addresses]]:
    """Serve each named world until the block ends."""
    mails = {side: DemoMail(world) for side, world in worlds.items()}
    app = Starlette(
        routes=[Mount(f"/{side}", routes=_routes(world, mails[side])) for side, world in worlds.items()],
        lifespan=_lifespan,
    )
    async with contextlib.AsyncExitStack() as stack:
        port = await stack.enter_async_context(_http(app))
        smtp_ports = {side: await stack.enter_async_context(_smtp(mail)) for side, mail in mails.items()}
        yield {side: Addresses(f"http://{LOOPBACK}:{port}/{side}", smtp_ports[side]) for side in worlds}


def _routes(world: DemoWorld, mail: DemoMail) -> list[Mount | Route]:
    async def effects(_request: Request) -> Response:
        return JSONResponse(msgspec.to_builtins(await world.quiet()))

    return [
        Mount("/payments", routes=DemoPayments(world).routes()),
        Mount("/mail", routes=mail.routes()),
        Mount("/tracker", routes=Tracker(world).routes()),
        Mount("/warehouse", routes=Warehouse(world).routes()),
        Route("/effects", effects),  # for the referee only
    ]


@contextlib.asynccontextmanager
async def _lifespan(_app: Starlette) -> AsyncGenerator[dict[str, object]]:
    yield {"connections": {}}


@contextlib.asynccontextmanager
async def _http(app: Starlette) -> AsyncGenerator[int]:
    listener = socket.create_server((LOOPBACK, 0))
    config = uvicorn.Config(
        app,
        http=DroppableConnection,
        ws="none",
        lifespan="on",
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=0,
    )
    server = AnnouncedServer(config)
    running = asyncio.create_task(server.serve([listener]))
    await server.up.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await running


@contextlib.asynccontextmanager
async def _smtp(mail: DemoMail) -> AsyncGenerator[int]:
    logging.getLogger("mail.log").setLevel(logging.CRITICAL)  # a killed client is no news here
    server = await asyncio.get_running_loop().create_server(mail.protocol, LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
