"""One POST on real sockets: encrypted and checked, with whatever a receiver answers, and with an end in time."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from beforehand.errors import Ambiguous, NotSent
from beforehand.testing import operation
from beforehand.webhooks.http_post import HEAD_AT_MOST, HttpAnswer, post

Talk = Callable[[socket.socket], None]


@contextmanager
def saying(talk: Talk, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server for one caller: it reads the request, and then says what `talk` says. Its port."""
    line = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            caller, _ = line.accept()
            with context.wrap_socket(caller, server_side=True) if context else caller as secured:
                secured.settimeout(10)
                if secured.recv(65536):
                    talk(secured)
        except OSError:
            return  # the caller hung up, as it should

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield line.getsockname()[1]
    finally:
        line.close()
        thread.join()


def says(*parts: bytes) -> Talk:
    def talk(caller: socket.socket) -> None:
        for part in parts:
            caller.sendall(part)

    return talk


def sent(talk: Talk) -> HttpAnswer:
    with saying(talk) as port, operation():
        return post(f"http://127.0.0.1:{port}/x?y=1", b"{}", {}, private=True)


def test_the_head_is_read_however_it_is_cut_and_the_body_is_not():
    assert sent(says(b"HTTP/1.1 20", b"4 No Content\r", b"\n\r\n")) == (204, "")
    assert sent(says(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\n", b"x" * 100_000)) == (503, "7")


def test_what_comes_before_the_last_word_is_passed_over():
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert sent(says(early + b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 202 Accepted\r\n\r\n")) == (202, "")


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\n", b"not HTTP at all\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"\xff\xfe\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n" + b"x" * (2 * HEAD_AT_MOST)],
)  # fmt: skip
def test_what_is_no_answer_leaves_it_open_whether_it_was_taken(answer: bytes):
    with pytest.raises(Ambiguous, match="it was sent, and no answer came"):
        sent(says(answer))


def test_an_answer_that_drips_ends_with_the_time_of_the_try():
    released = threading.Event()

    def drip(caller: socket.socket) -> None:
        caller.sendall(b"HTTP/1.1 200 OK\r\n")
        released.wait(10)

    with saying(drip) as port, operation(left_ms=50):
        with pytest.raises(Ambiguous, match="TimeoutError"):
            post(f"http://127.0.0.1:{port}/", b"{}", {}, private=True)
        released.set()


def test_nothing_is_begun_when_the_time_is_over():
    with saying(says()) as port, operation(left_ms=0):
        with pytest.raises(NotSent):
            post(f"http://127.0.0.1:{port}/", b"{}", {}, private=True)
        socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.parametrize(("name", "trusted"), [("localhost", True), ("example.com", True), ("localhost", False)])
def test_a_certificate_has_to_be_trusted_and_for_this_name(
    name: str, trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    (authority if trusted else other).cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with saying(says(b"HTTP/1.1 204 \r\n\r\n"), context) as port, operation():
        if name == "localhost" and trusted:
            assert post(f"https://localhost:{port}/", b"{}", {}, private=True).status == 204
        else:
            with pytest.raises(NotSent, match="certificate"):
                post(f"https://localhost:{port}/", b"{}", {}, private=True)
