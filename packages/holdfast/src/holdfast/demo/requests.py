"""The input of the demo: customer requests, one JSON object per line."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

REASONS = ("arrived broken", "too small", "wrong colour", "ordered twice", "came too late", "not as shown")


class CustomerRequest(msgspec.Struct, frozen=True):
    """A customer wants money back: a refund, a mail about it, a ticket, the goods back on the shelf."""

    id: int
    order_id: str
    email: str
    cents: int
    sku: str
    count: int
    reason: str


def make_requests(seed: int, how_many: int) -> list[CustomerRequest]:
    """The same customers for the same seed, numbered from 1."""
    dice = random.Random(f"requests/{seed}")
    return [
        CustomerRequest(
            id=number,
            order_id=f"order-{100 + number}",
            email=f"customer-{number}@example.com",
            cents=dice.randrange(500, 20_000, 5),
            sku=f"sku-{dice.randrange(10, 99)}",
            count=dice.randint(1, 3),
            reason=dice.choice(REASONS),
        )
        for number in range(1, how_many + 1)
    ]


def write_requests(path: Path, requests: list[CustomerRequest]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(request) + b"\n" for request in requests))


def read_requests(path: Path) -> list[CustomerRequest]:
    decoder = msgspec.json.Decoder(CustomerRequest)
    return decoder.decode_lines(path.read_bytes())
