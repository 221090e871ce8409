"""An order with a late refund: the money is taken at once, and given back when the bank says so, a day later.

    BANK=http://127.0.0.1:9000 beforehand run examples/order.py:order_desk '{"id": "17", "cents": 4200}'
    BANK_SECRET=whsec_... beforehand serve-hooks --sender bank=BANK_SECRET:tool=refund
    BANK=http://127.0.0.1:9000 beforehand worker examples/order.py:order_desk  # goes on with it
    beforehand pending

The bank accepts a refund with a number and confirms it by a webhook: late, twice, before its own answer, or never. Then
the deadline passes, and the bank is asked; and where it cannot say, a person is.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from beforehand import (
    CannotTell,
    Deferred,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)

DAY = timedelta(days=1)


@dataclass
class Order:
    id: str
    cents: int


def _bank(path: str, key: str = "", asked: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request to the bank: a POST where there is something to say, else a GET."""
    body = None if asked is None else json.dumps(asked).encode()
    request = urllib.request.Request(os.environ["BANK"] + path, body, {"Idempotency-Key": key})  # noqa: S310 - the bank
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
        told: dict[str, Any] = json.load(answer)
    return told


@tool(idempotency=Key.forever(stores="all"))
def pay(order: str, cents: int) -> str:
    """Take the money for an order."""
    return str(_bank("/payments", current_operation().key, {"order": order, "cents": cents})["payment"])


@tool(idempotency=Key.forever(stores="all"))
def refund(order: str, cents: int) -> str:
    """Give it back. The bank accepts now, and confirms within a day."""
    accepted = _bank("/refunds", current_operation().key, {"order": order, "cents": cents})
    current_operation().report("refunds under way", accepted["refund"])
    raise Deferred(f"the bank accepted it as {accepted['refund']}", within=DAY, key=accepted["refund"])


@refund.verify(settle_window=timedelta(0), deadline=timedelta(0))
def how_it_stands(operation: Operation[str]) -> Verdict[str]:
    """Ask the bank, once the day is over."""
    try:
        told = _bank(f"/refunds/{operation.key}")
    except urllib.error.HTTPError as error:
        return DidNotHappen() if error.code == 404 else CannotTell(f"the bank answered {error.code}")
    return Happened(f"R-{operation.key[-4:]}") if told["status"] == "done" else CannotTell("it is not booked yet")


@agent(run_id="order-{order.id}", tools=[pay, refund])
async def order_desk(run: Run, order: Order) -> str:
    """Sell it, take it back, and say so when the money is back."""
    paid = await pay(order.id, order.cents)
    returned = await refund(order.id, order.cents)
    return f"{paid} came back as {returned}"
