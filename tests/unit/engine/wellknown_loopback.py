"""Servers on loopback that fail in the ways that matter to the table of well-known exceptions."""

import contextlib
import socket
import ssl
import threading
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import pytest

from beforehand.engine.exceptions.classify import classify

Talk = Callable[[BinaryIO], None]


@dataclass
class Loopback:
    """Listeners of one test; closed, threads and all, when the test ends."""

    stack: contextlib.ExitStack
    serving: list[socket.socket] = field(default_factory=list)

    def serve(self, talk: Talk, tls: ssl.SSLContext | None = None) -> int:
        """Answer every connection with `talk`, then close it; returns the port."""
        listener = self._listen(backlog=8)
        self.serving.append(listener)
        thread = threading.Thread(target=self._accept, args=(listener, talk, tls), daemon=True)
        thread.start()
        self.stack.callback(thread.join, 5)
        self.stack.callback(_stop, listener)
        return port_of(listener)

    def stop_listening(self) -> None:
        """From now on every new connection to a served port is refused; conversations go on."""
        for listener in self.serving:
            _stop(listener)

    def refused(self) -> int:
        """A port that is bound and not listened to: no other process can take it, and every connection is refused."""
        bound = self._keep(socket.socket())
        bound.bind(("127.0.0.1", 0))
        return port_of(bound)

    def unanswered(self) -> int:
        """A listener whose queue is full: the kernel drops our SYN, so connecting never ends."""
        listener = self._listen(backlog=0)
        for _ in range(4):
            waiting = self._keep(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        return port_of(listener)

    def silent(self) -> int:
        """The kernel accepts and acknowledges what is sent; no process ever reads or answers."""
        return port_of(self._listen(backlog=8))

    def _listen(self, backlog: int) -> socket.socket:
        listener = self._keep(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(backlog)
        return listener

    def _keep(self, one: socket.socket) -> socket.socket:
        return self.stack.enter_context(contextlib.closing(one))

    def _accept(self, listener: socket.socket, talk: Talk, tls: ssl.SSLContext | None) -> None:
        while True:
            try:
                taken, _ = listener.accept()
            except OSError:
                return
            taken.settimeout(5)
            with taken, contextlib.suppress(OSError):
                spoken = taken if tls is None else tls.wrap_socket(taken, server_side=True)
                with spoken, spoken.makefile("rwb", buffering=0) as stream:
                    talk(stream)


def port_of(one: socket.socket) -> int:
    return int(one.getsockname()[1])


def _stop(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def loopback() -> Iterator[Loopback]:
    with contextlib.ExitStack() as stack:
        yield Loopback(stack)


def ended_by(call: Callable[[], object]) -> BaseException:
    try:
        done = call()
    except Exception as error:  # noqa: BLE001 - whatever the client raises is what is judged
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection open
        return error
    pytest.fail(f"the call was meant to fail, and gave {done!r}")


def verdict(call: Callable[[], object]) -> str:
    return classify(ended_by(call)).kind


def hang_up(stream: BinaryIO) -> None:
    """Accept and close at once."""


def read_and_hang_up(stream: BinaryIO) -> None:
    read_request(stream)


def half_an_answer(stream: BinaryIO) -> None:
    read_request(stream)
    stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")


def not_tls(stream: BinaryIO) -> None:
    stream.read(5)
    stream.write(b"this is not TLS, whatever you think\r\n" * 3)


def answer(status: int, *headers: str, body: str = "") -> Talk:
    def talk(stream: BinaryIO) -> None:
        read_request(stream)
        lines = [f"HTTP/1.1 {status} Answer", f"Content-Length: {len(body)}", "Connection: close", *headers]
        stream.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    return talk


def in_turn(*talks: Talk) -> Talk:
    """One conversation after the other, one connection each."""
    left = iter(talks)

    def talk(stream: BinaryIO) -> None:
        following = next(left)
        following(stream)

    return talk


def read_request(stream: BinaryIO) -> bytes:
    """Head and body of one request, so that closing afterwards is an orderly end and not a reset."""
    read = bytearray()
    while b"\r\n\r\n" not in read:
        if not (byte := stream.read(1)):
            return bytes(read)
        read += byte
    head = bytes(read).lower()
    if b"content-length:" in head:
        read += stream.read(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    return bytes(read)


def read_to_the_end(stream: BinaryIO) -> bytes:
    """All that the other side sends before it hangs up."""
    read = bytearray()
    while piece := stream.read(4096):
        read += piece
    return bytes(read)


def smtp(**replies: str | None) -> Talk:
    """A mail server that says 250 to everything but what `replies` says; None hangs up. END is the message's end."""

    def talk(stream: BinaryIO) -> None:
        say(stream, replies.get("GREET", "220 ready"))
        while line := stream.readline():
            verb = line.split()[0].upper().decode()
            usual = {"QUIT": "221 bye", "DATA": "354 go on"}.get(verb, "250 fine")
            if not say(stream, replies.get(verb, usual)):
                return
            if verb == "DATA" and "DATA" not in replies:
                while stream.readline() not in (b".\r\n", b""):
                    continue
                if not say(stream, replies.get("END", "250 queued")):
                    return

    return talk


def say(stream: BinaryIO, reply: str | None) -> bool:
    if reply is None:
        return False
    stream.write(f"{reply}\r\n".encode())
    return True


def postgres_refusing(sqlstate: str) -> Talk:
    """A PostgreSQL server that answers the startup message with an error."""

    def talk(stream: BinaryIO) -> None:
        startup(stream)
        fields = {"S": "FATAL", "V": "FATAL", "C": sqlstate, "M": "no"}
        message(stream, b"E", b"".join(f"{key}{value}\0".encode() for key, value in fields.items()) + b"\0")

    return talk


def postgres_hanging_up_on_the_first_query(stream: BinaryIO) -> None:
    startup(stream)
    message(stream, b"R", (0).to_bytes(4, "big"))
    for name, value in {"server_version": "16.0", "client_encoding": "UTF8"}.items():
        message(stream, b"S", f"{name}\0{value}\0".encode())
    message(stream, b"K", bytes(8))
    message(stream, b"Z", b"I")
    stream.read(5)


def startup(stream: BinaryIO) -> None:
    """Read the startup message, refusing the requests for TLS or GSS before it."""
    while True:
        size = int.from_bytes(stream.read(4), "big")
        body = stream.read(size - 4)
        if body[:2] != b"\x04\xd2":
            return
        stream.write(b"N")


def message(stream: BinaryIO, kind: bytes, body: bytes) -> None:
    stream.write(kind + (len(body) + 4).to_bytes(4, "big") + body)
