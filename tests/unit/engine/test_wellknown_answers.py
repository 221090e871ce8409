"""The number and the waiting time of an answer, from what each client raises for it."""

import asyncio
import smtplib
import urllib.request
from collections.abc import Callable, Iterator

import aiohttp
import aiosmtplib
import botocore.config
import botocore.session
import grpc
import grpc.aio
import httpx
import httpx2
import pytest
import requests
import tenacity
import urllib3

from beforehand.engine.exceptions.classify import classify
from beforehand.engine.exceptions.http import retry_after, status_code
from tests.unit.engine import wellknown_loopback as net

LATER = "Retry-After: Fri, 20 Nov 2026 10:00:30 GMT"
DATED = "Date: Fri, 20 Nov 2026 10:00:00 GMT"


@pytest.fixture
def loopback() -> Iterator[net.Loopback]:
    with net.loopback() as it:
        yield it


def by_httpx(url: str) -> object:
    return httpx.post(url, follow_redirects=True).raise_for_status()


def by_httpx2(url: str) -> object:
    return httpx2.post(url, follow_redirects=True).raise_for_status()


def by_requests(url: str) -> object:
    return requests.post(url, timeout=5).raise_for_status()


def by_urllib(url: str) -> object:
    return urllib.request.urlopen(url, data=b"x", timeout=5)


def by_aiohttp(url: str) -> object:
    async def post() -> object:
        async with aiohttp.ClientSession(raise_for_status=True) as client, client.post(url) as answer:
            return await answer.read()

    return asyncio.run(post())


def by_botocore(url: str, attempts: int = 1) -> object:
    queue = botocore.session.get_session().create_client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="id",
        aws_secret_access_key="none",
        config=botocore.config.Config(retries={"total_max_attempts": attempts}),
    )
    return queue.send_message(QueueUrl=f"{url}queue", MessageBody="x")


HTTP = [by_httpx, by_httpx2, by_requests, by_urllib, by_aiohttp, by_botocore]
every_http_client = pytest.mark.parametrize("client", HTTP)


def ended(client: Callable[[str], object], talk: net.Talk, loopback: net.Loopback) -> BaseException:
    port = loopback.serve(talk)
    return net.ended_by(lambda: client(f"http://127.0.0.1:{port}/"))


@every_http_client
@pytest.mark.parametrize("status", [400, 409, 422, 429, 500, 503])
def test_an_http_status_is_read_and_proves_nothing_by_itself(
    client: Callable[[str], object], status: int, loopback: net.Loopback
) -> None:
    error = ended(client, net.answer(status, "Retry-After: 30", body="{}"), loopback)
    assert status_code(error) == status
    assert retry_after(error) == 30.0
    assert classify(error).kind == "ambiguous"


@every_http_client
def test_a_date_is_measured_against_the_answers_own_date(
    client: Callable[[str], object], loopback: net.Loopback
) -> None:
    assert retry_after(ended(client, net.answer(503, DATED, LATER, body="{}"), loopback)) == 30.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        (["Retry-After: 0"], 0.0),
        (["retry-after:  7 "], 7.0),
        (["Retry-After: -5"], None),
        (["Retry-After: 1.5"], None),
        (["Retry-After: soon"], None),
        (["Retry-After: 99999999999999999999"], None),
        ([LATER], None),
        ([LATER, "Date: nonsense"], None),
        (["Retry-After: Fri, 20 Nov 2026 09:00:00 GMT", DATED], 0.0),
        (["Retry-After: Fri, 20 Nov 2026 09:00:00 -0000", DATED], None),
    ],
    ids=str,
)
def test_retry_after(headers: list[str], seconds: float | None, loopback: net.Loopback) -> None:
    assert retry_after(ended(by_httpx, net.answer(429, *headers), loopback)) == seconds


@pytest.mark.parametrize("client", [by_httpx, by_httpx2, by_requests, by_urllib, by_aiohttp])
def test_the_number_at_the_end_of_a_redirect_says_nothing_about_the_effect(
    client: Callable[[str], object], loopback: net.Loopback
) -> None:
    """POST, 303, GET, 404: the post was taken, only the page to see it is missing."""
    missing = loopback.serve(net.answer(404))
    error = ended(client, net.answer(303, f"Location: http://127.0.0.1:{missing}/"), loopback)
    assert "404" in str(error)
    assert status_code(error) is None


def test_the_number_after_an_inner_retry_says_nothing_about_the_tries_before(loopback: net.Loopback) -> None:
    """Lost, then refused as a duplicate: 409 is no proof against the first try."""
    retries = urllib3.Retry(2, allowed_methods=None, backoff_factor=0)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        port = loopback.serve(net.in_turn(net.read_and_hang_up, net.answer(409)))
        answer = session.post(f"http://127.0.0.1:{port}/", data=b"x")
    assert status_code(net.ended_by(answer.raise_for_status)) is None


def test_the_number_after_a_retry_of_botocore_says_nothing_about_the_tries_before(
    loopback: net.Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    port = loopback.serve(net.in_turn(net.answer(500, body="{}"), net.answer(409, body="{}")))
    error = net.ended_by(lambda: by_botocore(f"http://127.0.0.1:{port}/", attempts=2))
    assert "409" in str(error)
    assert status_code(error) is None


def test_the_number_below_a_retry_helper_says_nothing_about_the_tries_before(loopback: net.Loopback) -> None:
    port = loopback.serve(net.answer(409))
    again = tenacity.retry(stop=tenacity.stop_after_attempt(2), reraise=True)(by_httpx)
    assert status_code(net.ended_by(lambda: again(f"http://127.0.0.1:{port}/"))) is None


def test_the_number_after_a_challenge_counts(loopback: net.Loopback) -> None:
    challenge = 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    port = loopback.serve(net.in_turn(net.answer(401, challenge), net.answer(422)))
    answer = httpx.post(f"http://127.0.0.1:{port}/", auth=httpx.DigestAuth("u", "p"))
    assert [hop.status_code for hop in answer.history] == [401]
    assert status_code(net.ended_by(answer.raise_for_status)) == 422


def test_a_proxys_refusal_is_not_the_services_number(loopback: net.Loopback) -> None:
    proxy = f"http://127.0.0.1:{loopback.serve(net.answer(403))}"

    async def post() -> object:
        async with aiohttp.ClientSession() as client, client.post("https://192.0.2.1/", proxy=proxy) as answer:
            return answer

    error = net.ended_by(lambda: asyncio.run(post()))
    assert isinstance(error, aiohttp.ClientHttpProxyError)
    assert status_code(error) is None


def test_an_sdks_own_error_counts_when_it_carries_the_response(loopback: net.Loopback) -> None:
    class SdkError(Exception):
        def __init__(self, response: httpx.Response) -> None:
            super().__init__("refused")
            self.response = response

    port = loopback.serve(net.answer(429, "Retry-After: 3"))
    error = SdkError(httpx.post(f"http://127.0.0.1:{port}/"))
    assert (status_code(error), retry_after(error)) == (429, 3.0)
    assert classify(error).kind == "ambiguous"


@pytest.mark.parametrize(
    "error",
    [TimeoutError(), httpx.ReadTimeout("x"), requests.ConnectionError(), ValueError(404), SystemExit(4)],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_answer_has_no_number(error: BaseException) -> None:
    assert (status_code(error), retry_after(error)) == (None, None)


def test_the_reply_code_of_a_mail_server(loopback: net.Loopback) -> None:
    port = loopback.serve(net.smtp(END="550 spam"))

    def by_smtplib() -> object:
        mailer = smtplib.SMTP("127.0.0.1", port, timeout=5)
        try:
            return mailer.sendmail("from@example.com", ["to@example.com"], "Subject: x\r\n\r\nx")
        finally:
            mailer.close()

    mail = {"sender": "from@example.com", "recipients": ["to@example.com"], "start_tls": False}
    by_aiosmtplib = aiosmtplib.send("Subject: x\r\n\r\nx", hostname="127.0.0.1", port=port, timeout=5, **mail)
    assert status_code(net.ended_by(by_smtplib)) == 550
    assert status_code(net.ended_by(lambda: asyncio.run(by_aiosmtplib))) == 550


def test_the_number_of_a_grpc_status(loopback: net.Loopback) -> None:
    target = f"127.0.0.1:{loopback.refused()}"

    def by_grpc() -> object:
        with grpc.insecure_channel(target) as channel:
            return channel.unary_unary("/desk/refund")(b"x", timeout=5)

    async def by_grpc_aio() -> object:
        async with grpc.aio.insecure_channel(target) as channel:
            return await channel.unary_unary("/desk/refund")(b"x", timeout=5)

    unavailable = grpc.StatusCode.UNAVAILABLE.value[0]
    assert status_code(net.ended_by(by_grpc)) == unavailable
    assert status_code(net.ended_by(lambda: asyncio.run(by_grpc_aio()))) == unavailable
