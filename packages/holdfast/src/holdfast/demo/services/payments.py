"""Payments: refunds with an idempotency key.

POST /refunds with an `Idempotency-Key` header: the same key and body get the stored answer; the same
key with another body 422; while the first request is being worked on 409. Keys are forgotten after
`key_ttl`; then the same key refunds again. GET /refunds?reference=... reads what was refunded.
A customer may get several refunds for one order, so an order is no protection against paying twice.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.demo.services.http import HttpRefusal, end_badly
from holdfast.demo.world import DemoWorld, Reply


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

    def routes(self) -> list[Route]:
        return [Route("/refunds", self.create, methods=["POST"]), Route("/refunds", self.read, methods=["GET"])]

    async def create(self, request: Request) -> Response:
        order = msgspec.json.decode(await request.body(), type=RefundOrder)
        customer = self.world.by_order(order.order_id)
        if customer is None:
            return HttpRefusal(404, "no_such_order", f"no order {order.order_id}").response()
        key = request.headers.get("Idempotency-Key", "")
        if key in self._in_progress:
            return HttpRefusal(409, "in_progress", "a request with this key is being worked on").response()
        earlier = self._recall(key)
        if earlier is not None and earlier.order != order:
            return HttpRefusal(422, "key_reused", "this key was used for another refund").response()
        self._in_progress.add(key)
        answer = await self.world.serve("payments", customer.id, lambda at: self._book(key, order, customer.id, at))
        if isinstance(answer, RefundRecord):
            return JSONResponse(msgspec.to_builtins(answer), status_code=201)
        if answer is not Reply.LATE:
            self._in_progress.discard(key)
        return await end_badly(
            request, answer, HttpRefusal(402, "not_refundable", f"{order.order_id} is past its refund time")
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
