"""A bank on loopback, for `order.py`: payments at once, refunds a day later, and webhooks that are not reliable.

It dedupes on the `Idempotency-Key`, signs its webhooks by the Standard Webhooks rules, and counts what really happened.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook


class Bank:
    """What one bank did. `early`: it confirms before it has answered. `blind`: it does not say how a refund stands."""

    def __init__(self, url: str, secret: str) -> None:
        self.url = url
        self.hooks = ""
        self.early = False
        self.blind = False
        self.paid: dict[str, int] = {}
        self.refunds: dict[str, str] = {}
        self._secret = secret

    def pay(self, key: str, cents: int) -> dict[str, Any]:
        """Take the money, once per key."""
        self.paid.setdefault(key, cents)
        return {"payment": f"P-{key[-4:]}"}

    def refund(self, key: str) -> dict[str, Any]:
        """Accept a refund, once per key."""
        if key not in self.refunds:
            self.refunds[key] = "accepted"
            if self.early:
                self.confirm()
        return {"refund": f"R-{key[-4:]}", "status": self.refunds[key]}

    def book(self) -> None:
        """The day is over: every refund is done. No notice is sent."""
        self.refunds = dict.fromkeys(self.refunds, "done")

    def confirm(self, times: int = 1) -> list[int]:
        """The day is over, and the shop is told of every refund, `times` over; the statuses of its answers."""
        self.book()
        return [self._tell(key) for key in self.refunds for _ in range(times)]

    def _tell(self, key: str) -> int:
        name, now = f"R-{key[-4:]}", datetime.now(UTC)
        body = json.dumps({"key": name, "status": "succeeded", "result": name})
        headers = {
            "webhook-id": f"msg-{name}",
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(self._secret).sign(f"msg-{name}", now, body),
        }
        request = urllib.request.Request(self.hooks, body.encode(), headers)  # noqa: S310 - our own loopback address
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            status: int = answer.status
        return status


class _Desk(BaseHTTPRequestHandler):
    """The bank's counter; `bank` is filled in for each bank."""

    bank: Bank

    def do_POST(self) -> None:
        """Payments and refunds."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        if self.path == "/payments":
            self._say(201, self.bank.pay(key, asked["cents"]))
        else:
            self._say(202, self.bank.refund(key))

    def do_GET(self) -> None:
        """How a refund stands, by the key it was asked for with."""
        status = self.bank.refunds.get(self.path.removeprefix("/refunds/"))
        if self.bank.blind:
            self._say(503, {})
        else:
            self._say(404 if status is None else 200, {"status": status})

    def _say(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def open_bank(secret: str) -> Iterator[Bank]:
    """A bank that is open for as long as the block lasts."""
    counter = type("Counter", (_Desk,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), counter)
    bank = counter.bank = Bank(f"http://127.0.0.1:{server.server_address[1]}", secret)  # type: ignore[attr-defined]  # declared by its base
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield bank
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
