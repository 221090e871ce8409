"""An issue tracker: it knows no idempotency keys, but its tickets can be searched.

POST /tickets creates a ticket each time. GET /search?q=... finds tickets whose body contains the
words; the index is behind by `lag`.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.demo.services.http import HttpRefusal, end_badly
from holdfast.demo.world import DemoWorld, Reply


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

    def routes(self) -> list[Route]:
        return [Route("/tickets", self.create, methods=["POST"]), Route("/search", self.search, methods=["GET"])]

    async def create(self, request: Request) -> Response:
        draft = msgspec.json.decode(await request.body(), type=Draft)
        customer = self.world.by_order(draft.order_id)
        if customer is None:
            return HttpRefusal(404, "no_such_order", f"no order {draft.order_id}").response()
        answer = await self.world.serve("tracker", customer.id, lambda at: self._open(draft, customer.id, at))
        if isinstance(answer, Reply):
            return await end_badly(request, answer, HttpRefusal(403, "closed", "this customer's file is closed"))
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
