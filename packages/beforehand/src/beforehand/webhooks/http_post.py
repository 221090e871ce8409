"""One POST to an address that another party chose: its target is checked, and each step has a deadline.

No redirects, no proxies, nothing of the answer but its head: an address that was registered must not become a way into
the network of this process.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from beforehand.engine.current_operation import current_operation
from beforehand.errors import Ambiguous, NotSent
from beforehand.model.addresses import is_public

HEAD_AT_MOST: Final = 64 * 1024
STEP_S: Final = 10.0


class HttpAnswer(NamedTuple):
    """The head of an answer: its status, and its retry time."""

    status: int
    retry_after: str = ""


def post(url: str, body: bytes, headers: Mapping[str, str], *, private: bool) -> HttpAnswer:
    """Send it once. Raises `NotSent` where nothing was sent, `Ambiguous` where no answer came back.

    `private` permits internal addresses. Call it in a tool: its send-by deadline ends this too.
    """
    parts = urlsplit(url)
    with _connected(parts, private=private) as line:
        current_operation().check_send()
        try:
            line.sendall(_request(parts, body, headers))
            return _answer(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Ambiguous(f"it was sent, and no answer came: {type(error).__name__}: {error}") from error


def _connected(parts: SplitResult, *, private: bool) -> socket.socket:
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    failure = ""
    for family, address in _addresses(host, port, private=private):
        line = socket.socket(family, socket.SOCK_STREAM)
        try:
            line.settimeout(_step_s())
            line.connect(address)
            if parts.scheme == "http":
                return line
            return ssl.create_default_context().wrap_socket(line, server_hostname=host)
        except OSError as error:
            line.close()
            failure = f"{type(error).__name__}: {error}"
    raise NotSent(f"{host} cannot be reached: {failure}")


def _addresses(host: str, port: int, *, private: bool) -> Sequence[tuple[socket.AddressFamily, tuple[str, int]]]:
    """The addresses behind the name that may be used. The connection goes to these very addresses."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent(f"{host} cannot be resolved: {error}") from error
    open_ = [(family, (str(where[0]), port)) for family, _, _, _, where in found if private or is_public(str(where[0]))]
    if not open_:
        raise NotSent(
            f"{host} is a private address, to which no webhooks are sent", next_step="Settings(private_webhooks=True)"
        )
    return open_


def _request(parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _answer(line: socket.socket) -> HttpAnswer:
    """Read the head and no more; interim answers (100, 103) are skipped."""
    head = b""
    while True:
        head, _, rest = _until_blank_line(line, head).partition(b"\r\n\r\n")
        answer = http.client.HTTPResponse(_Head(head + b"\r\n\r\n"))  # type: ignore[arg-type]  # all it needs of a socket
        if head[9:10] != b"1":
            answer.begin()
            return HttpAnswer(answer.status, answer.headers.get("Retry-After", ""))
        head = rest


def _until_blank_line(line: socket.socket, so_far: bytes) -> bytes:
    while b"\r\n\r\n" not in so_far:
        line.settimeout(_step_s())
        more = line.recv(8192)
        if not more or len(so_far) > HEAD_AT_MOST:
            raise ConnectionError("the headers of the answer do not end")
        so_far += more
    return so_far


def _step_s() -> float:
    """The time limit of the next step. Raises `TimeoutError` when the time of the whole call is over."""
    left = current_operation().seconds_left
    if left <= 0:
        raise TimeoutError("the time for this try is over")
    return min(STEP_S, left)


class _Head:
    """A head that was read already, for the parser of the standard library."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
