"""The same refund desk on Beforehand: what you would write in your own project.

Each tool says what its service offers. That is all Beforehand needs to know to survive the kills:
payments dedupes on a key, mail and tracker can be looked up, the warehouse offers nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

import aiosmtplib
import httpx2

from beforehand import (
    Ambiguous,
    DidNotHappen,
    Happened,
    Key,
    Operation,
    Rejected,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.demo.scenario import CustomerRequest
from beforehand.demo.shop import Refund, RefusedError, shop
from beforehand.demo.world import DemoPace
from beforehand.errors import KeyInProgress

DOCUMENTED = DemoPace()
KEY_LIFE = timedelta(seconds=DOCUMENTED.key_ttl)
SETTLES = timedelta(seconds=DOCUMENTED.late + DOCUMENTED.lag + 0.5)
PATIENCE = timedelta(seconds=2)
HTTP_CONFLICT = 409


@tool(
    idempotency=Key(ttl=KEY_LIFE, in_progress="rejects"),
    claim="order_id",
    timeout=PATIENCE,
    title="refund {cents:,} cents for {order_id}",
)
async def refund(order_id: str, cents: int) -> Refund:
    operation = current_operation()
    with answers():
        return await shop().refund(order_id, cents, key=operation.key, reference=operation.marker)


@refund.verify(settle_window=SETTLES)
async def in_the_books(operation: Operation[Refund]) -> Verdict[Refund]:
    found = await shop().find_refund(operation.marker)
    return Happened(found) if found else DidNotHappen()


@tool(timeout=PATIENCE)
async def send_email(to: str, subject: str, body: str) -> None:
    with answers():
        await shop().send_mail(to, subject, body, message_id=f"<{current_operation().marker}>")


@send_email.verify(settle_window=SETTLES)
async def in_the_mailbox(operation: Operation[None]) -> Verdict[None]:
    return Happened(None) if await shop().find_mail(f"<{operation.marker}>") else DidNotHappen()


@tool(timeout=PATIENCE)
async def open_ticket(order_id: str, title: str, body: str) -> str:
    with answers():
        return await shop().open_ticket(order_id, title, f"{body}\n\n[{current_operation().marker}]")


@open_ticket.verify(settle_window=SETTLES)
async def in_the_tracker(operation: Operation[str]) -> Verdict[str]:
    found = await shop().find_ticket(operation.marker)
    return Happened(found) if found else DidNotHappen()


# A plain write: attempted once; if its answer is lost, a person is asked.
@tool(title="restock {count} x {sku} of {order_id}", timeout=PATIENCE)
async def restock(order_id: str, sku: str, count: int) -> None:
    with answers():
        await shop().restock(order_id, sku, count)


@agent(run_id="request-{request.id}")
async def desk(run: Run, request: CustomerRequest) -> str:  # noqa: ARG001 - every agent receives its run
    money = await refund.outcome(request.order_id, request.cents)
    text = f"Your refund is {money.result.id}." if money.status == "succeeded" else f"No refund: {money.reason}."
    await send_email.outcome(request.email, "Your refund", text)
    await open_ticket.outcome(request.order_id, f"{request.order_id} {request.reason}", text)
    await restock.outcome(request.order_id, request.sku, request.count)
    return text


@contextmanager
def answers() -> Generator[None]:
    """Send now or not at all, and declare which answers of these services prove something."""
    current_operation().check_send()
    try:
        yield
    except RefusedError as no:
        raise Rejected(str(no), code=no.code) from no
    except httpx2.HTTPStatusError as error:
        if error.response.status_code == HTTP_CONFLICT:
            raise KeyInProgress("payments still works on an earlier request with this key") from error
        raise
    except aiosmtplib.SMTPDataError as error:
        raise Ambiguous(f"the mail server answered {error.code} after it had the message") from error
