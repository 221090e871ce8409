"""Real failures of real HTTP clients against loopback servers, and the verdict on each."""

import asyncio
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import aiohttp
import httpx
import httpx2
import pytest
import requests
import trustme
import urllib3

from beforehand.engine.exceptions.classify import classify
from tests.unit.engine import wellknown_loopback as net

TICK = 0.05  # seconds that a client waits for what never comes
LONG = 5.0  # seconds that a client could wait for what comes at once


@dataclass(frozen=True)
class Patience:
    """How many seconds a client waits for a connection, and for each piece of an answer."""

    connect: float = LONG
    read: float = LONG


Client = Callable[[str, Patience], object]
PATIENT = Patience()


@pytest.fixture
def loopback() -> Iterator[net.Loopback]:
    with net.loopback() as it:
        yield it


@pytest.fixture(scope="module")
def nobody_trusts() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


# -- HTTP ------------------------------------------------------------------------------------------


def by_httpx(url: str, wait: Patience = PATIENT) -> object:
    return httpx.post(
        url, content=b"x", timeout=httpx.Timeout(LONG, connect=wait.connect, read=wait.read), follow_redirects=True
    )


def by_httpx2(url: str, wait: Patience = PATIENT) -> object:
    return httpx2.post(
        url, content=b"x", timeout=httpx2.Timeout(LONG, connect=wait.connect, read=wait.read), follow_redirects=True
    )


def by_async_httpx(url: str, wait: Patience = PATIENT) -> object:
    async def post() -> object:
        timeout = httpx.Timeout(LONG, connect=wait.connect, read=wait.read)
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=True) as client:
            return await client.post(url, content=b"x")

    return asyncio.run(post())


def by_async_httpx2(url: str, wait: Patience = PATIENT) -> object:
    async def post() -> object:
        timeout = httpx2.Timeout(LONG, connect=wait.connect, read=wait.read)
        async with httpx2.AsyncClient(timeout=timeout, follow_redirects=True) as client:
            return await client.post(url, content=b"x")

    return asyncio.run(post())


def by_requests(url: str, wait: Patience = PATIENT) -> object:
    return requests.post(url, data=b"x", timeout=(wait.connect, wait.read))


def by_urllib3(url: str, wait: Patience = PATIENT) -> object:
    with urllib3.PoolManager() as pool:
        return pool.request("POST", url, body=b"x", timeout=urllib3.Timeout(connect=wait.connect, read=wait.read))


def by_urllib(url: str, wait: Patience = PATIENT) -> object:
    with urllib.request.urlopen(url, data=b"x", timeout=min(wait.connect, wait.read)) as answer:
        return answer.read()


def by_aiohttp(url: str, wait: Patience = PATIENT) -> object:
    async def post() -> object:
        timeout = aiohttp.ClientTimeout(sock_connect=wait.connect, sock_read=wait.read)
        async with aiohttp.ClientSession(timeout=timeout) as client, client.post(url, data=b"x") as answer:
            return await answer.read()

    return asyncio.run(post())


BODY = {"httpx": "content", "requests": "data"}

HTTP: list[Client] = [
    by_httpx,
    by_async_httpx,
    by_httpx2,
    by_async_httpx2,
    by_requests,
    by_urllib3,
    by_urllib,
    by_aiohttp,
]
every_http_client = pytest.mark.parametrize("client", HTTP, ids=lambda client: client.__name__)


@every_http_client
def test_a_refused_connection_is_not_sent(client: Client, loopback: net.Loopback) -> None:
    assert net.verdict(lambda: client(f"http://127.0.0.1:{loopback.refused()}/")) == "not_sent"


@every_http_client
def test_a_name_that_does_not_resolve_is_not_sent(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def without_asking_anyone(host: str, port: object, *_: object, **__: object) -> object:
        return resolve("not-a-number", 80, flags=socket.AI_NUMERICHOST)  # the resolver's own error, no packet sent

    monkeypatch.setattr(socket, "getaddrinfo", without_asking_anyone)
    assert net.verdict(lambda: client("http://nowhere.invalid/")) == "not_sent"


@every_http_client
def test_a_connection_not_made_in_time_is_not_sent_where_the_client_says_so(
    client: Client, loopback: net.Loopback
) -> None:
    found = net.verdict(lambda: client(f"http://127.0.0.1:{loopback.unanswered()}/", Patience(connect=TICK)))
    assert found == ("ambiguous" if client is by_urllib else "not_sent")  # urllib: a bare TimeoutError


@every_http_client
def test_a_certificate_that_nobody_trusts_is_not_sent(
    client: Client, loopback: net.Loopback, nobody_trusts: ssl.SSLContext
) -> None:
    port = loopback.serve(net.read_and_hang_up, nobody_trusts)
    assert net.verdict(lambda: client(f"https://127.0.0.1:{port}/")) == "not_sent"


@every_http_client
def test_an_answer_that_is_not_tls_is_not_sent_where_the_client_says_so(client: Client, loopback: net.Loopback) -> None:
    found = net.verdict(lambda: client(f"https://127.0.0.1:{loopback.serve(net.not_tls)}/"))
    bare = client in (by_requests, by_urllib3, by_urllib)  # one SSLError for handshakes and for later failures
    assert found == ("ambiguous" if bare else "not_sent")


@every_http_client
@pytest.mark.parametrize("talk", [net.hang_up, net.read_and_hang_up, net.half_an_answer], ids=lambda t: t.__name__)
def test_a_lost_connection_is_ambiguous(client: Client, talk: net.Talk, loopback: net.Loopback) -> None:
    def call() -> object:
        return client(f"http://127.0.0.1:{loopback.serve(talk)}/")

    assert net.verdict(call) == "ambiguous"


@every_http_client
def test_an_answer_that_never_comes_is_ambiguous(client: Client, loopback: net.Loopback) -> None:
    assert net.verdict(lambda: client(f"http://127.0.0.1:{loopback.silent()}/", Patience(read=TICK))) == "ambiguous"


@pytest.mark.parametrize("client", [one for one in HTTP if one is not by_urllib])  # it raises a bare ValueError
@pytest.mark.parametrize("url", ["gopher://127.0.0.1/", "http://[::1"])
def test_a_url_that_cannot_be_spoken_is_not_sent(client: Client, url: str) -> None:
    assert net.verdict(lambda: client(url)) == "not_sent"


@every_http_client
@pytest.mark.parametrize("status", [303, 307])
def test_a_refused_connection_after_a_redirect_is_ambiguous(
    client: Client, status: int, loopback: net.Loopback
) -> None:
    onwards = f"Location: http://127.0.0.1:{loopback.refused()}/"
    error = net.ended_by(lambda: client(f"http://127.0.0.1:{loopback.serve(net.answer(status, onwards))}/"))
    found = classify(error)
    assert found.kind == "ambiguous"
    if not isinstance(error, urllib.error.HTTPError):  # urllib does not follow 307 with a body
        assert found.rule == "earlier-send"


@every_http_client
@pytest.mark.parametrize("location", ["gopher://127.0.0.1/", "http://[::1"])
def test_a_redirect_to_a_url_that_cannot_be_spoken_is_ambiguous(
    client: Client, location: str, loopback: net.Loopback
) -> None:
    port = loopback.serve(net.answer(303, f"Location: {location}"))
    assert net.verdict(lambda: client(f"http://127.0.0.1:{port}/")) == "ambiguous"


@pytest.mark.parametrize("package", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_no_free_connection_in_the_pool_is_not_sent(package: object, loopback: net.Loopback) -> None:
    kit = httpx if package is httpx else httpx2
    port = loopback.serve(net.half_an_answer)
    with (
        kit.Client(limits=kit.Limits(max_connections=1), timeout=kit.Timeout(LONG, pool=TICK)) as client,
        client.stream("GET", f"http://127.0.0.1:{port}/"),
    ):
        assert net.verdict(lambda: client.post(f"http://127.0.0.1:{port}/")) == "not_sent"


# -- proxies, challenges and inner retries ---------------------------------------------------------------


def through_requests(proxy: str, url: str) -> object:
    return requests.post(url, data=b"x", timeout=LONG, proxies={"http": proxy, "https": proxy})


def through_httpx(proxy: str, url: str) -> object:
    with httpx.Client(proxy=proxy) as client:
        return client.post(url, content=b"x")


def through_aiohttp(proxy: str, url: str) -> object:
    async def post() -> object:
        async with aiohttp.ClientSession() as client, client.post(url, data=b"x", proxy=proxy) as answer:
            return await answer.read()

    return asyncio.run(post())


every_proxied_client = pytest.mark.parametrize("client", [through_requests, through_httpx, through_aiohttp])


@every_proxied_client
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_is_not_sent(
    client: Callable[[str, str], object], scheme: str, loopback: net.Loopback
) -> None:
    proxy = f"http://127.0.0.1:{loopback.refused()}"
    assert net.verdict(lambda: client(proxy, f"{scheme}://192.0.2.1/")) == "not_sent"


@every_proxied_client
def test_a_proxy_that_hangs_up_after_the_request_is_ambiguous(
    client: Callable[[str, str], object], loopback: net.Loopback
) -> None:
    proxy = f"http://127.0.0.1:{loopback.serve(net.read_and_hang_up)}"
    assert net.verdict(lambda: client(proxy, "http://192.0.2.1/")) == "ambiguous"


@pytest.mark.parametrize("client", [through_httpx, through_aiohttp])
def test_a_proxy_that_opens_no_tunnel_is_not_sent(client: Callable[[str, str], object], loopback: net.Loopback) -> None:
    proxy = f"http://127.0.0.1:{loopback.serve(net.answer(403))}"
    assert net.verdict(lambda: client(proxy, "https://192.0.2.1/")) == "not_sent"


def test_a_challenge_answered_before_the_refusal_is_ambiguous(loopback: net.Loopback) -> None:
    """The first request was answered 401; whatever that means, the second one's refusal says nothing about it."""
    challenge = 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    answered = loopback.serve(net.answer(401, challenge))
    refused = loopback.refused()

    def elsewhere(request: httpx.Request) -> None:
        if "Authorization" in request.headers:
            request.url = request.url.copy_with(port=refused)

    with httpx.Client(event_hooks={"request": [elsewhere]}) as client:
        error = net.ended_by(lambda: client.post(f"http://127.0.0.1:{answered}/", auth=httpx.DigestAuth("u", "p")))
    assert classify(error).rule == "earlier-send" or isinstance(error, httpx.ReadError)


@pytest.mark.parametrize("client", ["httpx", "requests"])
def test_a_refusal_met_by_a_streamed_body_is_ambiguous(client: str, loopback: net.Loopback) -> None:
    """The refused connection is another request's; this one's head had left by then."""
    seen = SimpleQueue[bytes]()
    outer = loopback.serve(lambda stream: seen.put(net.read_to_the_end(stream)))
    refused = loopback.refused()

    def body() -> Iterator[bytes]:
        yield b"first"
        httpx.get(f"http://127.0.0.1:{refused}/")

    post = httpx.post if client == "httpx" else requests.post
    error = net.ended_by(lambda: post(f"http://127.0.0.1:{outer}/", **{BODY[client]: body()}))
    assert isinstance(error, httpx.ConnectError)
    assert classify(error).rule == "earlier-send"
    assert seen.get(timeout=5).startswith(b"POST / HTTP/1.1")


def test_aiohttp_that_sent_again_on_a_new_connection_is_ambiguous(loopback: net.Loopback) -> None:
    """It repeats a PUT by itself when a kept connection is closed under it, even if the PUT was read."""
    read: list[bytes] = []

    def keep_once(stream: net.BinaryIO) -> None:
        net.read_request(stream)
        stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        read.append(net.read_request(stream))
        loopback.stop_listening()

    url = f"http://127.0.0.1:{loopback.serve(keep_once)}/"

    async def put_twice() -> object:
        async with aiohttp.ClientSession() as client:
            await (await client.put(url, data=b"first")).read()
            return await client.put(url, data=b"second")

    error = net.ended_by(lambda: asyncio.run(put_twice()))
    assert isinstance(error, aiohttp.ClientConnectorError)
    assert classify(error).rule == "earlier-send"
    assert read[0].endswith(b"second")


def urllib3_with(retries: urllib3.Retry, port: int) -> BaseException:
    with urllib3.PoolManager(retries=retries) as pool:
        return net.ended_by(lambda: pool.request("POST", f"http://127.0.0.1:{port}/", body=b"x", timeout=LONG))


def test_urllib3_refused_again_and_again_is_not_sent(loopback: net.Loopback) -> None:
    found = classify(urllib3_with(urllib3.Retry(3, backoff_factor=0), loopback.refused()))
    assert found.kind == "not_sent"


def test_urllib3_refused_after_a_lost_try_is_ambiguous(loopback: net.Loopback) -> None:
    port = loopback.serve(once(net.read_and_hang_up, loopback))
    error = urllib3_with(urllib3.Retry(2, allowed_methods=None, backoff_factor=0), port)
    assert isinstance(error.__cause__, urllib3.exceptions.NewConnectionError), error
    assert classify(error).rule == "earlier-send"


def test_requests_refused_after_a_lost_try_is_ambiguous(loopback: net.Loopback) -> None:
    port = loopback.serve(once(net.read_and_hang_up, loopback))
    retries = urllib3.Retry(2, allowed_methods=None, backoff_factor=0)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        error = net.ended_by(lambda: session.post(f"http://127.0.0.1:{port}/", data=b"x", timeout=LONG))
    assert "NewConnectionError" in str(error)
    assert classify(error).rule == "earlier-send"


def test_urllib3_refused_after_a_retried_status_is_ambiguous(loopback: net.Loopback) -> None:
    port = loopback.serve(once(net.answer(503), loopback))
    error = urllib3_with(urllib3.Retry(2, allowed_methods=None, status_forcelist=[503], backoff_factor=0), port)
    assert classify(error).rule == "earlier-send"


def once(talk: net.Talk, loopback: net.Loopback) -> net.Talk:
    """Stop listening before the only conversation ends, so that the next connection is refused."""

    def talk_once(stream: net.BinaryIO) -> None:
        loopback.stop_listening()
        talk(stream)

    return talk_once
