"""The shared parts of the HTTP services: bad answers, and connections that end without one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.demo.world import Reply


class HttpRefusal(NamedTuple):
    """How a service says no."""

    status: int
    code: str
    message: str

    def response(self) -> Response:
        return JSONResponse({"code": self.code, "message": self.message}, status_code=self.status)


class DroppableConnection(H11Protocol):
    """Uvicorn's HTTP protocol, with a way to close a connection in the middle of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.app_state["connections"][self.client] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state["connections"].pop(self.client, None)
        super().connection_lost(exc)


async def end_badly(request: Request, reply: Reply, refusal: HttpRefusal) -> Response:
    """Turn a reply into what the client sees. Returns late or never where no answer is due."""
    if reply is Reply.REFUSED:
        return refusal.response()
    if reply is Reply.BROKEN:
        return JSONResponse({"code": "internal", "message": "something went wrong"}, status_code=500)
    if reply is Reply.DROPPED and request.client is not None:
        request.state.connections[tuple(request.client)].abort()
    while (await request.receive())["type"] != "http.disconnect":
        continue
    return Response()  # never delivered: the connection is gone
