"""Notices by e-mail: one message to one recipient, in plain text and HTML, by SMTP.

SMTP has no keys. A server that answers refuses or takes a message as a whole; if the connection breaks after the last
byte, the outcome is unknown, and the message is not sent again on a guess. Its Message-ID is the same on every try.
"""

from __future__ import annotations

import html
import re
import smtplib
import socket
import ssl
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime
from typing import Final, Literal, Self

import msgspec

from beforehand.engine.current_operation import current_operation
from beforehand.errors import Ambiguous, NotSent, Rejected, UsageError
from beforehand.model.secret import Secret
from beforehand_console.notify.channel import SendContext, checked_name, hidden, revealed
from beforehand_console.notify.compose import BROKEN_UP, Letter, LetterLine, harmless, title, when
from beforehand_console.notify.schedule import Only, Pace

Tls = Literal["starttls", "implicit", "none"]
STEP_S: Final = 20.0
LATER_S: Final = 120.0  # servers that greylist want at least some minutes
_ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(\d{1,5}))?")
_PORTS: Final[dict[Tls, int]] = {"starttls": 587, "implicit": 465, "none": 25}
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_STYLE: Final = "font-family:sans-serif;font-size:15px;line-height:1.4;color:#1a1a1a;max-width:40em"


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """E-mail to one person. `name` is what `beforehand notices` calls it; the address itself if it is not given.

    `server` is a host, with a port where it is not the usual one of `tls`. A password goes over an encrypted line only.
    Raises `UsageError` for what cannot be an address or a server.
    """

    to: str
    sender: str
    server: str = "localhost"
    user: str = ""
    password: str | Secret = ""
    tls: Tls = "starttls"
    name: str = ""
    only: Only = Only()
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        for address in (self.to, self.sender):
            if not _ADDRESS.fullmatch(address):
                raise UsageError(f"{address!r} is not a mail address", next_step="give one like ann@example.com")
        if not _SERVER.fullmatch(self.server):
            raise UsageError(f"{self.server!r} is not a mail server", next_step="give one like mail.example.com:587")
        if self.user and self.tls == "none" and self._host not in _LOCAL:
            raise UsageError(
                f"the password for {self._host} would be sent unencrypted",
                next_step='use tls="starttls" or "implicit"',
            )
        msgspec.structs.force_setattr(
            self, "name", checked_name(self.name or re.sub(r"[^A-Za-z0-9_.]", "_", self.to)[:40])
        )
        if self.password:
            msgspec.structs.force_setattr(self, "password", hidden(self.password, f"{self.name}-password"))

    def __repr__(self) -> str:
        return f"Mail({self.name!r}, to={self.to!r})"

    @property
    def receiver(self) -> str:
        """The address."""
        return self.to

    @property
    def _host(self) -> str:
        return self.server.rpartition(":")[0].strip("[]") if _has_port(self.server) else self.server.strip("[]")

    @property
    def _port(self) -> int:
        return int(self.server.rpartition(":")[2]) if _has_port(self.server) else _PORTS[self.tls]

    def send(self, letter: Letter, outside: SendContext) -> str:
        """Send it once."""
        message = written(self, letter, outside).as_bytes(policy=WIRE)
        password = revealed(self.password) if isinstance(self.password, Secret) else ""
        with _Line(self._host, self._port, self.tls) as line:
            line.greet(self.user, password)
            return line.deliver(self.sender, self.to, message)


def written(mail: Mail, letter: Letter, outside: SendContext) -> EmailMessage:
    """The message. Raises `NotSent` for a header that would not be one line."""
    message = EmailMessage()
    try:
        message["Subject"] = title(letter)
        message["From"] = mail.sender
        message["To"] = mail.to
        message["Date"] = format_datetime(datetime.fromtimestamp(outside.clock_s, UTC))
        message["Message-ID"] = f"<{outside.marker}>"
        message["Auto-Submitted"] = "auto-generated"
        message["X-Auto-Response-Suppress"] = "All"
    except (MessageError, ValueError) as error:
        raise NotSent(f"the notice cannot be written as a mail: {type(error).__name__}") from error
    links = [outside.link(line) for line in letter.lines]
    message.set_content(plain_text(letter, outside), cte="quoted-printable")
    message.add_alternative(_html(letter, links), subtype="html", cte="quoted-printable")
    return message


def plain_text(letter: Letter, outside: SendContext) -> str:
    """The whole notice as plain text."""
    parts = [title(letter), ""]
    for line in letter.lines:
        link = outside.link(line)
        parts += [f"{name}: {harmless(value)}" for name, value in (*_about(line), *when(line))]
        parts += ["", f"    {harmless(line.asks)}", "", "Answer:", *(f"    {one}" for one in line.answers)]
        parts += [f"Or here: {link}"] if link else []
        parts += ["", "-" * 60, ""]
    return "\n".join([*parts, *_foot(letter), ""])


def _html(letter: Letter, links: list[str]) -> str:
    parts = [
        '<!doctype html><html><head><meta charset="utf-8">',
        '<meta name="format-detection" content="telephone=no,date=no,address=no,email=no,url=no"></head>',
        f'<body style="{_STYLE}"><h1 style="font-size:18px">{html.escape(title(letter))}</h1>',
    ]
    for line, link in zip(letter.lines, links, strict=True):
        rows = "".join(
            f'<tr><td style="padding-right:1em;vertical-align:top"><b>{html.escape(name)}</b></td>'
            f"<td>{html.escape(harmless(value))}</td></tr>"
            for name, value in (*_about(line), *when(line))
        )
        parts.append(f"<hr><table>{rows}</table><blockquote>{html.escape(harmless(line.asks))}</blockquote>")
        parts.append(f'<p><a href="{html.escape(link)}">Open it in the inbox</a></p>' if link else "")
        commands = "<br>".join(f"<code>{html.escape(one)}</code>" for one in line.answers)
        parts.append(f"<p>Or answer with<br>{commands}</p>")
    foot = "<br>".join(html.escape(one) for one in _foot(letter))
    return "".join([*parts, f'<hr><p style="color:#555">{foot}</p></body></html>'])


def _about(line: LetterLine) -> tuple[tuple[str, str], ...]:
    return (("Item", line.item), *line.facts, *((("Digest", line.digest),) if line.digest else ()))


def _foot(letter: Letter) -> list[str]:
    more = [f"And {letter.more} more: beforehand inbox"] if letter.more else []
    return [*more, BROKEN_UP, "This message was sent by a program, and answers to it are not read."]


def _has_port(server: str) -> bool:
    found = _SERVER.fullmatch(server)
    return found is not None and found[2] is not None


class _Line:
    """One SMTP conversation, in which each step says what it proves."""

    def __init__(self, host: str, port: int, tls: Tls) -> None:
        self._host, self._port, self._tls = host, port, tls

    def __enter__(self) -> Self:
        timeout, secure = _step_s(), ssl.create_default_context()
        try:
            if self._tls == "implicit":
                self._smtp: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, timeout=timeout, context=secure)
            else:
                self._smtp = smtplib.SMTP(self._host, self._port, timeout=timeout)
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(
                f"the mail server {self._host} cannot be reached: {_error_text(error)}", retry_after=LATER_S
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection: the server's answer is final, whatever it would say to a farewell."""
        self._smtp.close()

    def greet(self, user: str, password: str) -> None:
        """Greet the server and sign in: before the first command about a message, nothing can have been sent."""
        try:
            self._smtp.ehlo_or_helo_if_needed()
            if self._tls == "starttls":
                self._smtp.starttls(context=ssl.create_default_context())
                self._smtp.ehlo()
            if user:
                self._smtp.login(user, password)
        except smtplib.SMTPAuthenticationError as error:
            raise NotSent(
                f"the mail server {self._host} refused the password ({error.smtp_code})", retry_after=600
            ) from error
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(
                f"the mail server {self._host} lost the connection before a message was sent: {_error_text(error)}",
                retry_after=LATER_S,
            ) from error

    def deliver(self, sender: str, to: str, message: bytes) -> str:
        """Hand the message over; returns the server's answer."""
        try:
            _agreed(*self._smtp.mail(sender))
            _agreed(*self._smtp.rcpt(to))
            _agreed(*self._smtp.docmd("DATA"))
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(
                f"the connection broke before the message was sent: {_error_text(error)}", retry_after=LATER_S
            ) from error
        current_operation().check_send()
        try:
            self._socket().settimeout(_step_s())
            self._smtp.send(re.sub(rb"(?m)^\.", b"..", message).removesuffix(b"\r\n") + b"\r\n.\r\n")
            code, reply = self._smtp.getreply()
        except (OSError, smtplib.SMTPException) as error:
            raise Ambiguous(f"the message was sent, and no answer came: {_error_text(error)}") from error
        _agreed(code, reply)
        return f"{code}"

    def _socket(self) -> socket.socket:
        assert self._smtp.sock is not None, "the line is open"
        return self._smtp.sock


def _agreed(code: int, reply: bytes) -> None:
    """Check an answer: below 400 accepts; 4xx refuses for now, as in greylisting; 5xx for good: nothing was taken."""
    if code < 400:
        return
    why = f"the mail server answered {code} {harmless(reply.decode('utf-8', 'replace'), 200)}".rstrip()
    if code < 500:
        raise NotSent(why, retry_after=LATER_S)
    raise Rejected(why, code=str(code))


def _error_text(error: Exception) -> str:
    """The error, without anything that was sent."""
    return f"{type(error).__name__} {getattr(error, 'smtp_code', '')}".rstrip()


def _step_s() -> float:
    left = current_operation().seconds_left
    if left <= 0:
        raise NotSent("the time for this try is over")
    return min(STEP_S, left)
