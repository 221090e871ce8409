"""The refund desk as people write it today: retries with backoff, and a checkpoint to restart from.

Nothing is weaker here than in common practice: every call has a time limit, transient failures are
retried, a definite refusal is not, the payment carries an idempotency key that all retries of the call
share, and a restarted worker skips what its checkpoint says is done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from email.utils import make_msgid
from pathlib import Path
from typing import TypeVar

from beforehand.demo.scenario import CustomerRequest, lane_of, read_requests
from beforehand.demo.shop import RefusedError, shop

T = TypeVar("T")
TRIES = 4


async def with_retries(call: Callable[[], Awaitable[T]]) -> T:
    """Try again after any error that may pass, waiting longer each time."""
    for attempt in range(1, TRIES):
        try:
            return await call()
        except RefusedError:
            raise
        except Exception:  # noqa: BLE001 - a retry helper retries on any exception
            await asyncio.sleep(0.1 * 2**attempt)
    return await call()


async def refund(request: CustomerRequest) -> None:
    key = str(uuid.uuid4())  # made per call, as client libraries do: a restarted worker makes a new one
    await with_retries(lambda: shop().refund(request.order_id, request.cents, key=key))


async def send_email(request: CustomerRequest) -> None:
    message_id = make_msgid(domain="example.com")
    text = f"We have refunded {request.cents} cents for {request.order_id}."
    await with_retries(lambda: shop().send_mail(request.email, "Your refund", text, message_id=message_id))


async def open_ticket(request: CustomerRequest) -> None:
    title = f"{request.order_id} {request.reason}"
    await with_retries(lambda: shop().open_ticket(request.order_id, title, request.reason))


async def restock(request: CustomerRequest) -> None:
    await with_retries(lambda: shop().restock(request.order_id, request.sku, request.count))


STEPS = {"payments": refund, "mail": send_email, "tracker": open_ticket, "warehouse": restock}


class Checkpoint:
    """The steps that are done, in a JSON file that is replaced after each step: `{"7/mail": "done"}`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.steps: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def mark(self, step: str, status: str) -> None:
        self.steps[step] = status
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self.steps, indent=1))
        draft.replace(self._path)  # a crash leaves the old file or the new one


async def handle(request: CustomerRequest, checkpoint: Checkpoint) -> None:
    for name, step in STEPS.items():
        place = f"{request.id}/{name}"
        if place in checkpoint.steps:
            continue
        try:
            await step(request)
        except Exception as error:  # noqa: BLE001 - one failed step must not stop the desk
            checkpoint.mark(place, f"failed: {error or type(error).__name__}")
        else:
            checkpoint.mark(place, "done")


async def work(requests: Path, checkpoint: Checkpoint, lane: int) -> None:
    for request in read_requests(requests):
        if lane_of(request.id) == lane:
            await handle(request, checkpoint)
            print(json.dumps({"type": "handled", "request": request.id}), flush=True)
    await shop().close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m beforehand.demo.without", description=__doc__)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--lane", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(work(arguments.requests, Checkpoint(arguments.checkpoint), arguments.lane))


if __name__ == "__main__":
    main()
