"""A typical warehouse: POST /restock puts goods on a shelf.

It has no key and no search, and the stock level proves nothing, since others move goods all day.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.demo.services.http import HttpRefusal, end_badly
from holdfast.demo.world import DemoWorld, Reply


class Restock(msgspec.Struct, frozen=True):
    order_id: str
    sku: str
    count: int


class Warehouse:
    """Takes goods back; it cannot be asked what it took."""

    def __init__(self, world: DemoWorld) -> None:
        self.world = world

    def routes(self) -> list[Route]:
        return [Route("/restock", self.restock, methods=["POST"])]

    async def restock(self, request: Request) -> Response:
        goods = msgspec.json.decode(await request.body(), type=Restock)
        customer = self.world.by_order(goods.order_id)
        if customer is None:
            return HttpRefusal(404, "no_such_order", f"no order {goods.order_id}").response()
        answer = await self.world.serve("warehouse", customer.id, lambda _at: self._shelve(customer.id))
        if isinstance(answer, Reply):
            return await end_badly(request, answer, HttpRefusal(410, "discontinued", f"{goods.sku} is discontinued"))
        return JSONResponse({"shelved": answer}, status_code=201)

    def _shelve(self, request: int) -> bool:
        self.world.record("warehouse", request)
        return True
