"""A mail server on loopback that a test tells how to answer, and what it took."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from ssl import SSLContext

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

HANGS_UP = "after the message"


class Office:
    """`answers` are the words to each message in turn, the last one for ever; `HANGS_UP` takes it and says nothing.

    `rcpt` and `greeting` likewise answer a recipient. `box` holds what was taken.
    """

    def __init__(self) -> None:
        self.answers: list[str] = ["250 OK"]
        self.rcpt: list[str] = ["250 OK"]
        self.box: list[EmailMessage] = []
        self.tried = 0
        self.port = 0
        self.signed_in: list[str] = []
        self.encrypted: list[bool] = []
        self.password = ""

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        word = self.rcpt.pop(0) if len(self.rcpt) > 1 else self.rcpt[0]
        if word.startswith("2"):
            envelope.rcpt_tos.append(address)
        return word

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:
        self.tried += 1
        self.encrypted.append(
            server.transport is not None and server.transport.get_extra_info("sslcontext") is not None
        )
        word = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if word.startswith("2") or word == HANGS_UP:
            assert isinstance(envelope.content, bytes)
            message = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(message, EmailMessage)
            self.box.append(message)
        if word == HANGS_UP:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
        return word

    def authenticator(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, given: object
    ) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.signed_in.append(given.login.decode())
        return AuthResult(success=given.password.decode() == self.password, handled=False)


@contextmanager
def post_office(starttls: SSLContext | None = None, implicit: SSLContext | None = None) -> Iterator[Office]:
    """One server in a thread of its own, closed at the end. `starttls` offers to encrypt, `implicit` always does."""
    office, ready = Office(), threading.Event()
    close: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def protocol() -> SMTP:
            return SMTP(
                office, hostname="mail.example.com", loop=loop, tls_context=starttls,
                authenticator=office.authenticator, auth_require_tls=implicit is None,
            )  # fmt: skip

        server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=implicit)
        office.port = server.sockets[0].getsockname()[1]
        close.append(lambda: loop.call_soon_threadsafe(stop.set))
        ready.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield office
    finally:
        close[0]()
        thread.join()


def plain(message: EmailMessage) -> str:
    part = message.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


def page(message: EmailMessage) -> str:
    part = message.get_body(("html",))
    assert part is not None
    return str(part.get_content())
