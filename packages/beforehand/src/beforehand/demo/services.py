"""The services of the demo: payments, mail, an issue tracker and a warehouse, on loopback.

Each has other means against repeated effects, and all of them give bad answers, or end connections without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, Mapping
from email import message_from_bytes

import msgspec
import uvicorn
from aiosmtpd.smtp import SMTP, Envelope, Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from beforehand.demo.shop import LOOPBACK, Addresses
from beforehand.demo.world import DemoWorld, Reply


def refusal(status: int, code: str, message: str) -> Response:
    """How a service says no."""
    return JSONResponse({"code": code, "message": message}, status_code=status)


class DroppableConnection(H11Protocol):
    """Uvicorn's HTTP protocol, with a way to close a connection in the middle of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.app_state["connections"][self.client] = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.app_state["connections"].pop(self.client, None)
        super().connection_lost(exc)


async def end_badly(request: Request, reply: Reply, refused: Response) -> Response:
    """Turn a reply into what the client sees. Returns late or never where no answer is due."""
    if reply is Reply.REFUSED:
        return refused
    if reply is Reply.BROKEN:
        return refusal(500, "internal", "something went wrong")
    if reply is Reply.DROPPED and request.client is not None:
        request.state.connections[tuple(request.client)].abort()
    while (await request.receive())["type"] != "http.disconnect":
        continue
    return Response()  # never delivered: the connection is gone


# --- payments: refunds with an idempotency key -----------------------------------------------------------------------
#
# POST /refunds with an `Idempotency-Key` header: the same key and body get the stored answer; the same
# key with another body 422; while the first request is being worked on 409. Keys are forgotten after
# `key_ttl`; then the same key refunds again. GET /refunds?reference=... reads what was refunded.
# A customer may get several refunds for one order, so an order is no protection against paying twice.


class RefundOrder(msgspec.Struct, frozen=True):
    order_id: str
    cents: int
    reference: str = ""


class RefundRecord(msgspec.Struct, frozen=True):
    id: str
    order_id: str
    cents: int
    reference: str


class RememberedReply(msgspec.Struct, frozen=True):
    order: RefundOrder
    refund: RefundRecord
    since: float


class DemoPayments:
    """The books of the payment provider, and its web API."""

    def __init__(self, world: DemoWorld) -> None:
        self.world = world
        self.refunds: list[RefundRecord] = []
        self._remembered: dict[str, RememberedReply] = {}
        self._in_progress: set[str] = set()

    async def create(self, request: Request) -> Response:
        order = msgspec.json.decode(await request.body(), type=RefundOrder)
        customer = self.world.by_order(order.order_id)
        if customer is None:
            return refusal(404, "no_such_order", f"no order {order.order_id}")
        key = request.headers.get("Idempotency-Key", "")
        if key in self._in_progress:
            return refusal(409, "in_progress", "a request with this key is being worked on")
        earlier = self._recall(key)
        if earlier is not None and earlier.order != order:
            return refusal(422, "key_reused", "this key was used for another refund")
        self._in_progress.add(key)
        answer = await self.world.serve("payments", customer.id, lambda at: self._book(key, order, customer.id, at))
        if isinstance(answer, RefundRecord):
            return JSONResponse(msgspec.to_builtins(answer), status_code=201)
        if answer is not Reply.LATE:
            self._in_progress.discard(key)
        return await end_badly(
            request, answer, refusal(402, "not_refundable", f"{order.order_id} is past its refund time")
        )

    async def read(self, request: Request) -> Response:
        reference = request.query_params.get("reference", "")
        return JSONResponse(msgspec.to_builtins([one for one in self.refunds if one.reference == reference]))

    def _recall(self, key: str) -> RememberedReply | None:
        remembered = self._remembered.get(key) if key else None
        if remembered and self.world.clock.monotonic() - remembered.since > self.world.pace.key_ttl:
            del self._remembered[key]
            return None
        return remembered

    def _book(self, key: str, order: RefundOrder, request: int, at: float) -> RefundRecord:
        self._in_progress.discard(key)
        if (earlier := self._recall(key)) is not None:
            return earlier.refund
        refund = RefundRecord(f"refund-{1001 + len(self.refunds)}", order.order_id, order.cents, order.reference)
        self.refunds.append(refund)
        self._remembered[key] = RememberedReply(order, refund, at)
        self.world.record("payments", request)
        return refund


# --- mail: an SMTP server that delivers to a mailbox, and the web API of the mailbox ---------------------------------
#
# A message counts from the moment when the server has taken it. GET /messages?message_id=... shows it
# after `lag`, as mailboxes and sent folders do. SMTP has no keys: the same Message-ID sent twice is
# delivered twice.


ACCEPTED = "250 OK"


class DemoMessage(msgspec.Struct, frozen=True):
    message_id: str
    to: str
    since: float


class DemoMail:
    """The messages that were taken, an aiosmtpd handler, and the mailbox's web API."""

    def __init__(self, world: DemoWorld) -> None:
        self.world = world
        self.messages: list[DemoMessage] = []

    def protocol(self) -> SMTP:
        """One SMTP connection; a factory for `loop.create_server`."""
        return SMTP(self, hostname="mail.example.com", loop=asyncio.get_running_loop())

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds its hooks by these names
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        customer = self.world.by_email(address)
        if customer is None or self.world.refuses("mail", customer.id):
            return "550 5.1.1 no such mailbox here"
        envelope.rcpt_tos.append(address)
        return ACCEPTED

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        customer = self.world.by_email(envelope.rcpt_tos[0])
        if customer is None or not isinstance(envelope.content, bytes):
            return "554 5.6.0 message not understood"
        message_id = str(message_from_bytes(envelope.content)["Message-ID"] or "")
        answer = await self.world.serve(
            "mail", customer.id, lambda at: self._deliver(message_id, customer.email, customer.id, at)
        )
        if not isinstance(answer, Reply):
            return answer
        if answer is Reply.BROKEN:
            return "451 4.3.0 local error in processing"
        if answer is Reply.DROPPED and isinstance(server.transport, asyncio.WriteTransport):
            server.transport.abort()
        await asyncio.Event().wait()  # until the client hangs up, which cancels us
        return ""

    async def read(self, request: Request) -> Response:
        message_id = request.query_params.get("message_id", "")
        visible = self.world.clock.monotonic() - self.world.pace.lag
        found = [one for one in self.messages if one.message_id == message_id and one.since <= visible]
        return JSONResponse([{"message_id": one.message_id, "to": one.to} for one in found])

    def _deliver(self, message_id: str, to: str, request: int, at: float) -> str:
        self.messages.append(DemoMessage(message_id, to, at))
        self.world.record("mail", request)
        return ACCEPTED


# --- an issue tracker without idempotency keys, whose tickets can be searched ----------------------------------------
#
# POST /tickets creates a ticket each time. GET /search?q=... finds tickets whose body contains the
# words; the index is behind by `lag`.


class Draft(msgspec.Struct, frozen=True):
    order_id: str
    title: str
    body: str


class Ticket(msgspec.Struct, frozen=True):
    id: str
    title: str
    body: str
    since: float


class Tracker:
    """The tracker's tickets, and its web API."""

    def __init__(self, world: DemoWorld) -> None:
        self.world = world
        self.tickets: list[Ticket] = []

    async def create(self, request: Request) -> Response:
        draft = msgspec.json.decode(await request.body(), type=Draft)
        customer = self.world.by_order(draft.order_id)
        if customer is None:
            return refusal(404, "no_such_order", f"no order {draft.order_id}")
        answer = await self.world.serve("tracker", customer.id, lambda at: self._open(draft, customer.id, at))
        if isinstance(answer, Reply):
            return await end_badly(request, answer, refusal(403, "closed", "this customer's file is closed"))
        return JSONResponse({"id": answer.id}, status_code=201)

    async def search(self, request: Request) -> Response:
        words = request.query_params.get("q", "")
        indexed = self.world.clock.monotonic() - self.world.pace.lag
        found = [ticket for ticket in self.tickets if words in ticket.body and ticket.since <= indexed]
        return JSONResponse([{"id": ticket.id, "title": ticket.title} for ticket in found])

    def _open(self, draft: Draft, request: int, at: float) -> Ticket:
        ticket = Ticket(f"ticket-{1 + len(self.tickets)}", draft.title, draft.body, at)
        self.tickets.append(ticket)
        self.world.record("tracker", request)
        return ticket


# --- a typical warehouse: POST /restock puts goods on a shelf --------------------------------------------------------
#
# It has no key and no search, and the stock level proves nothing, since others move goods all day.


class Restock(msgspec.Struct, frozen=True):
    order_id: str
    sku: str
    count: int


class Warehouse:
    """Takes goods back; it cannot be asked what it took."""

    def __init__(self, world: DemoWorld) -> None:
        self.world = world

    async def restock(self, request: Request) -> Response:
        goods = msgspec.json.decode(await request.body(), type=Restock)
        customer = self.world.by_order(goods.order_id)
        if customer is None:
            return refusal(404, "no_such_order", f"no order {goods.order_id}")
        answer = await self.world.serve(
            "warehouse", customer.id, lambda _at: self.world.record("warehouse", customer.id)
        )
        if isinstance(answer, Reply):
            return await end_badly(request, answer, refusal(410, "discontinued", f"{goods.sku} is discontinued"))
        return JSONResponse({"shelved": True}, status_code=201)


# --- the services of each side, on loopback ports that the system chooses --------------------------------------------


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


def _routes(world: DemoWorld, mail: DemoMail) -> list[Route]:
    async def effects(_request: Request) -> Response:
        return JSONResponse(msgspec.to_builtins(await world.quiet()))

    payments, tracker = DemoPayments(world), Tracker(world)
    return [
        Route("/payments/refunds", payments.create, methods=["POST"]),
        Route("/payments/refunds", payments.read, methods=["GET"]),
        Route("/mail/messages", mail.read, methods=["GET"]),
        Route("/tracker/tickets", tracker.create, methods=["POST"]),
        Route("/tracker/search", tracker.search, methods=["GET"]),
        Route("/warehouse/restock", Warehouse(world).restock, methods=["POST"]),
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
