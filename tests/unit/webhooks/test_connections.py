"""Both servers under clients that hold connections, over real sockets: silent ones, slow ones, ones that do not read."""

import asyncio
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from beforehand import Beforehand
from beforehand.errors import UsageError
from beforehand.webhooks.connections import ConnectionLimits, server_config, tls_context
from beforehand.webhooks.incoming import Hooks, WebhookSender
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.site import loopback
from beforehand_console.web.app import web
from tests.unit.webhooks.test_incoming import desk, memory, new_secret

SHORT = ConnectionLimits(head_s=0.3, body_s=0.3, linger_s=0.2, read_s=0.3)
PATIENT = ConnectionLimits(head_s=60, body_s=60)
SERVED = {"hooks": 405, "web": 303}
"""What a GET without anything is answered by a server that serves."""


@contextmanager
def serving(kind: str, limits: ConnectionLimits, tls: ssl.SSLContext | None = None) -> Generator[int]:
    """One of the two servers in a thread; its port."""
    line = socket.create_server(("127.0.0.1", 0))
    port: int = line.getsockname()[1]
    servers: list[uvicorn.Server] = []
    begun = threading.Event()

    async def serve() -> None:
        async with Beforehand(memory(), agents=[desk], recover=False) as app:
            if kind == "hooks":
                inside = Hooks(app.service, [WebhookSender("bank", new_secret(), anything=True)])
            else:
                inside = web(app.service, Authenticator(app.engine), loopback(port, "https" if tls else "http"))
            servers.append(uvicorn.Server(server_config(inside, limits, tls, lifespan="off")))
            begun.set()
            await servers[0].serve(sockets=[line])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert begun.wait(20)
        yield port
    finally:
        servers[0].should_exit = servers[0].force_exit = True
        thread.join(20)
        line.close()


def status(port: int, source: str) -> int:
    transport = httpx.HTTPTransport(local_address=source)
    with httpx.Client(transport=transport, timeout=10, trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}/").status_code


def connected(port: int, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def answer(line: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    got = b""
    while more := line.recv(4096):
        got += more
    return got


@pytest.mark.parametrize("kind", SERVED)
def test_silent_connections_of_one_address_do_not_keep_others_out(kind: str):
    with serving(kind, PATIENT) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port, "127.0.0.1")) for _ in range(300)]
        assert status(port, "127.0.0.2") == SERVED[kind]
        assert answer(silent[-1]).startswith(b"HTTP/1.1 429 ")
        for line in silent:
            line.close()
        assert status(port, "127.0.0.1") == SERVED[kind], "its places are free again"


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo"])
def test_a_head_that_does_not_come_is_cut_off(kind: str, sent: bytes):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        line.sendall(sent)
        assert answer(line).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("kind", SERVED)
def test_a_second_head_on_the_same_connection_has_its_deadline_too(kind: str):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\nG".encode())
        first, _, second = answer(line).partition(b"HTTP/1.1 408 ")
        assert first.startswith(f"HTTP/1.1 {SERVED[kind]} ".encode())
        assert second


@pytest.mark.parametrize("kind", SERVED)
def test_a_body_that_trickles_is_cut_off(kind: str):
    with serving(kind, SHORT) as port, connected(port, "127.0.0.1") as line:
        head = f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n"
        line.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n".encode())
        got, line_is_open = b"", True
        line.settimeout(0.05)
        for _ in range(200):  # a byte now and then: it gains no time
            try:
                line.sendall(b"a")
                more = line.recv(4096)
                got, line_is_open = got + more, bool(more)
            except TimeoutError:
                continue
            except OSError:
                line_is_open = False
            if not line_is_open:
                break
        assert not line_is_open
        assert got.startswith(b"HTTP/1.1 408 ")
        assert status(port, "127.0.0.1") == SERVED[kind]


# --- over TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("tls") / "cert.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


def secure_status(port: int, certificate: Path, source: str) -> int:
    trusted = ssl.create_default_context(cafile=certificate)
    with connected(port, source) as plain, trusted.wrap_socket(plain, server_hostname="127.0.0.1") as line:
        line.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        return int(answer(line).split(b" ")[1])


@pytest.mark.parametrize("kind", SERVED)
def test_over_tls_connections_before_the_handshake_count_for_their_address(kind: str, certificate: Path):
    with serving(kind, PATIENT, tls_context(str(certificate))) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port, "127.0.0.1")) for _ in range(300)]
        assert secure_status(port, certificate, "127.0.0.2") == SERVED[kind]
        with suppress(ConnectionResetError):
            assert answer(silent[-1]) == b"", "there is no answer before a handshake"
        silent[0].settimeout(0.05)
        with pytest.raises(TimeoutError):
            silent[0].recv(1)  # within its share: it may still begin
        for line in silent:
            line.close()
        assert secure_status(port, certificate, "127.0.0.1") == SERVED[kind], "its places are free again"


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "part", "no TLS"]
)
def test_a_handshake_that_does_not_come_is_cut_off(kind: str, sent: bytes, certificate: Path):
    with serving(kind, SHORT, tls_context(str(certificate))) as port:
        with connected(port, "127.0.0.1") as line, suppress(ConnectionResetError):
            line.sendall(sent)
            answer(line)  # it ends, at most with an alert
        assert secure_status(port, certificate, "127.0.0.1") == SERVED[kind]


@pytest.mark.parametrize("kind", SERVED)
def test_a_head_that_does_not_come_after_the_handshake_is_cut_off(kind: str, certificate: Path):
    trusted = ssl.create_default_context(cafile=certificate)
    with (
        serving(kind, SHORT, tls_context(str(certificate))) as port,
        connected(port, "127.0.0.1") as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as line,
    ):
        assert answer(line).startswith(b"HTTP/1.1 408 ")


def test_clients_that_leave_during_the_handshake_free_their_places(certificate: Path):
    limits = ConnectionLimits(head_s=60, body_s=60, per_peer=2)
    with serving("hooks", limits, tls_context(str(certificate))) as port:
        for _ in range(50):
            connected(port, "127.0.0.1").close()
            with connected(port, "127.0.0.1") as line:
                line.sendall(b"\x16\x03\x01\x02\x00")
        waiting = 50
        while waiting:  # the server takes note of the last ones a moment later
            try:
                assert secure_status(port, certificate, "127.0.0.1") == SERVED["hooks"]
                break
            except (ConnectionResetError, ssl.SSLError):
                waiting -= 1
        assert waiting, "no place is free"


def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path):
    (tmp_path / "cert.pem").write_text("no certificate")
    for name in ("cert.pem", "missing.pem"):
        with pytest.raises(UsageError, match=r"cannot be used.*--cert"):
            tls_context(str(tmp_path / name))
