"""Mail: an SMTP server that delivers to a mailbox, and the mailbox's web API.

A message counts from the moment when the server has taken it. GET /messages?message_id=... shows it
after `lag`, as mailboxes and sent folders do. SMTP has no keys: the same Message-ID sent twice is
delivered twice.
"""

from __future__ import annotations

import asyncio
from email import message_from_bytes

import msgspec
from aiosmtpd.smtp import SMTP, Envelope, Session
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.demo.world import DemoWorld, Reply

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

    def routes(self) -> list[Route]:
        return [Route("/messages", self.read, methods=["GET"])]

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
