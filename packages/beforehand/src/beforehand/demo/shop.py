"""The shop's own client library: the addresses of the services, and how both agents call them.

Nothing here is about Beforehand. A call returns, raises `RefusedError` if the service definitely
refused, and otherwise raises the network error.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Final

import aiosmtplib
import httpx2
import msgspec

LOOPBACK: Final = "127.0.0.1"

ENVIRONMENT: Final = "BEFOREHAND_DEMO_SERVICES"
"""The environment variable that names the file with a side's addresses."""


class Addresses(msgspec.Struct, frozen=True):
    """One side's services. `http` is the root of the web APIs."""

    http: str
    smtp_port: int


# --- the client of the services --------------------------------------------------------------------------------------


PATIENCE_S: Final = 0.4
"""How long a client waits for an answer, in seconds."""

REFUSALS: Final = frozenset({402, 403, 404, 410, 422})
"""The status codes of a definite refusal by these services; documented by each of them."""


class RefusedError(Exception):
    """The service understood the request and refused it: nothing happened."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refund(msgspec.Struct, frozen=True):
    id: str
    cents: int


class Found(msgspec.Struct, frozen=True):
    id: str


class Shop:
    """One client for all services of a side."""

    def __init__(self, addresses: Addresses, patience_s: float = PATIENCE_S) -> None:
        self._http = httpx2.AsyncClient(base_url=addresses.http, timeout=patience_s, trust_env=False)
        self._patience_s = patience_s
        self._smtp_port = addresses.smtp_port

    async def refund(self, order_id: str, cents: int, *, key: str, reference: str = "") -> Refund:
        body = {"order_id": order_id, "cents": cents, "reference": reference}
        answer = await self._post("/payments/refunds", body, {"Idempotency-Key": key})
        return msgspec.json.decode(answer.content, type=Refund)

    async def find_refund(self, reference: str) -> Refund | None:
        found = msgspec.json.decode(await self._get("/payments/refunds", {"reference": reference}), type=list[Refund])
        return found[0] if found else None

    async def send_mail(self, to: str, subject: str, body: str, *, message_id: str) -> None:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = "desk@example.com", to, subject
        message["Message-ID"] = message_id
        message.set_content(body)
        try:
            await aiosmtplib.send(
                message, hostname=LOOPBACK, port=self._smtp_port, timeout=self._patience_s, start_tls=False
            )
        except aiosmtplib.SMTPRecipientsRefused as no:
            raise RefusedError("no_such_mailbox", f"{to} does not exist") from no

    async def find_mail(self, message_id: str) -> bool:
        return await self._get("/mail/messages", {"message_id": message_id}) != b"[]"

    async def open_ticket(self, order_id: str, title: str, body: str) -> str:
        answer = await self._post("/tracker/tickets", {"order_id": order_id, "title": title, "body": body})
        return msgspec.json.decode(answer.content, type=Found).id

    async def find_ticket(self, words: str) -> str | None:
        found = msgspec.json.decode(await self._get("/tracker/search", {"q": words}), type=list[Found])
        return found[0].id if found else None

    async def restock(self, order_id: str, sku: str, count: int) -> None:
        await self._post("/warehouse/restock", {"order_id": order_id, "sku": sku, "count": count})

    async def close(self) -> None:
        await self._http.aclose()

    async def _post(
        self, path: str, body: Mapping[str, object], headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        answer = await self._http.post(path, json=body, headers=headers)
        if answer.status_code in REFUSALS:
            no = answer.json()
            raise RefusedError(no["code"], no["message"])
        return answer.raise_for_status()

    async def _get(self, path: str, query: dict[str, str]) -> bytes:
        answer = await self._http.get(path, params=query)
        return answer.raise_for_status().content


@functools.cache
def shop() -> Shop:
    """The one shop of this process, connected to the services that the environment names."""
    return Shop(msgspec.json.decode(Path(os.environ[ENVIRONMENT]).read_bytes(), type=Addresses))
