"""Real failures of mail, database, AWS and gRPC clients against loopback servers, and the verdict on each."""

import asyncio
import contextlib
import smtplib
from collections.abc import Callable, Iterator

import aiosmtplib
import asyncpg
import botocore.config
import botocore.session
import grpc
import grpc.aio
import psycopg
import pytest

from beforehand.engine.exceptions.classify import classify
from tests.unit.engine import wellknown_loopback as net

TICK = 0.05  # seconds that a client waits for what never comes
LONG = 5.0  # seconds that a client could wait for what comes at once

MAIL = "Subject: Hello\r\n\r\nHello"


@pytest.fixture
def loopback() -> Iterator[net.Loopback]:
    with net.loopback() as it:
        yield it


# -- mail ----------------------------------------------------------------------------------------------


def by_smtplib(port: int, wait: float = LONG) -> object:
    mailer = smtplib.SMTP("127.0.0.1", port, timeout=wait)
    with contextlib.closing(mailer):
        return mailer.sendmail("from@example.com", ["to@example.com"], MAIL)


def by_aiosmtplib(port: int, wait: float = LONG) -> object:
    mail = aiosmtplib.send(
        MAIL,
        sender="from@example.com",
        recipients=["to@example.com"],
        hostname="127.0.0.1",
        port=port,
        timeout=wait,
        start_tls=False,
    )
    return asyncio.run(mail)


every_mailer = pytest.mark.parametrize("mailer", [by_smtplib, by_aiosmtplib])


@every_mailer
def test_a_refused_mail_connection_is_not_sent(mailer: Callable[[int], object], loopback: net.Loopback) -> None:
    assert net.verdict(lambda: mailer(loopback.refused())) == "not_sent"


@every_mailer
@pytest.mark.parametrize(
    "replies",
    [
        {"GREET": "554 go away"},
        {"EHLO": "550 no", "HELO": "550 no"},
        {"MAIL": "550 not you"},
        {"RCPT": "550 not them"},
        {"MAIL": "451 later"},
    ],
    ids=str,
)
def test_mail_refused_before_its_data_is_not_sent(
    mailer: Callable[[int], object], replies: dict[str, str], loopback: net.Loopback
) -> None:
    port = loopback.serve(net.smtp(**replies))
    assert net.verdict(lambda: mailer(port)) == "not_sent"


@every_mailer
@pytest.mark.parametrize(
    "replies",
    [{"END": "550 spam"}, {"END": "451 later"}, {"DATA": "451 later"}, {"END": None}, {"MAIL": None}],
    ids=str,
)
def test_mail_that_ended_at_its_data_or_without_an_answer_is_ambiguous(
    mailer: Callable[[int], object], replies: dict[str, str | None], loopback: net.Loopback
) -> None:
    port = loopback.serve(net.smtp(**replies))
    assert net.verdict(lambda: mailer(port)) == "ambiguous"


@pytest.mark.parametrize("silence", ["unanswered", "silent"])
def test_a_mail_server_that_never_greets(silence: str, loopback: net.Loopback) -> None:
    port = loopback.unanswered() if silence == "unanswered" else loopback.silent()
    assert net.verdict(lambda: by_smtplib(port, TICK)) == "ambiguous"  # a bare TimeoutError or SMTPServerDisconnected
    assert net.verdict(lambda: by_aiosmtplib(port, TICK)) == "not_sent"  # says that it was connecting


def test_a_mail_server_that_hangs_up_at_once(loopback: net.Loopback) -> None:
    port = loopback.serve(net.hang_up)
    assert net.verdict(lambda: by_smtplib(port)) == "ambiguous"
    assert net.verdict(lambda: by_aiosmtplib(port)) == "not_sent"


# -- databases -----------------------------------------------------------------------------------------


def by_psycopg(port: int) -> object:
    with psycopg.connect(f"host=127.0.0.1 port={port} user=u dbname=d connect_timeout=2 gssencmode=disable") as link:
        return link.execute("insert into t values (1)")


def by_asyncpg(port: int) -> object:
    async def insert() -> object:
        link = await asyncpg.connect(host="127.0.0.1", port=port, user="u", database="d", password="", timeout=LONG)
        return await link.execute("insert into t values (1)")

    return asyncio.run(insert())


every_database_client = pytest.mark.parametrize("client", [by_psycopg, by_asyncpg])


@every_database_client
def test_a_refused_database_connection_is_not_sent(client: Callable[[int], object], loopback: net.Loopback) -> None:
    assert net.verdict(lambda: client(loopback.refused())) == "not_sent"


@every_database_client
@pytest.mark.parametrize("sqlstate", ["28P01", "53300", "57P03"])
def test_a_database_that_refuses_the_session_is_not_sent(
    client: Callable[[int], object], sqlstate: str, loopback: net.Loopback
) -> None:
    port = loopback.serve(net.postgres_refusing(sqlstate))
    assert net.verdict(lambda: client(port)) == "not_sent"


@every_database_client
def test_a_database_connection_lost_during_a_statement_is_ambiguous(
    client: Callable[[int], object], loopback: net.Loopback
) -> None:
    port = loopback.serve(net.postgres_hanging_up_on_the_first_query)
    assert net.verdict(lambda: client(port)) == "ambiguous"


def test_psycopg_says_the_same_class_for_connecting_and_for_a_lost_statement(loopback: net.Loopback) -> None:
    """Why the row needs more than the class."""
    connecting = net.ended_by(lambda: by_psycopg(loopback.refused()))
    lost = net.ended_by(lambda: by_psycopg(loopback.serve(net.postgres_hanging_up_on_the_first_query)))
    assert type(connecting) is type(lost) is psycopg.OperationalError


# -- AWS and gRPC --------------------------------------------------------------------------------------


def by_botocore(port: int, attempts: int = 1, *, connect: float = LONG, read: float = LONG) -> object:
    settings = botocore.config.Config(
        connect_timeout=connect, read_timeout=read, retries={"total_max_attempts": attempts, "mode": "legacy"}
    )
    url = f"http://127.0.0.1:{port}"
    queue = botocore.session.get_session().create_client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="id",
        aws_secret_access_key="none",
        config=settings,
    )
    return queue.send_message(QueueUrl=f"{url}/queue", MessageBody="x")


def test_botocore_without_a_connection_is_not_sent(loopback: net.Loopback) -> None:
    assert net.verdict(lambda: by_botocore(loopback.refused())) == "not_sent"
    assert net.verdict(lambda: by_botocore(loopback.unanswered(), connect=TICK)) == "not_sent"


def test_botocore_without_an_answer_is_ambiguous(loopback: net.Loopback) -> None:
    assert net.verdict(lambda: by_botocore(loopback.silent(), read=TICK)) == "ambiguous"
    assert net.verdict(lambda: by_botocore(loopback.serve(net.read_and_hang_up))) == "ambiguous"


def test_botocore_that_tried_before_is_ambiguous(loopback: net.Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    assert classify(net.ended_by(lambda: by_botocore(loopback.refused(), attempts=2))).rule == "earlier-send"


def by_grpc(port: int) -> object:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return channel.unary_unary("/desk/refund")(b"x", timeout=LONG)


def by_grpc_aio(port: int) -> object:
    async def call() -> object:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return await channel.unary_unary("/desk/refund")(b"x", timeout=LONG)

    return asyncio.run(call())


@pytest.mark.parametrize("client", [by_grpc, by_grpc_aio])
def test_grpc_is_ambiguous_whatever_happened(client: Callable[[int], object], loopback: net.Loopback) -> None:
    found = classify(net.ended_by(lambda: client(loopback.refused())))
    assert (found.kind, found.rule) == ("ambiguous", "grpc.RpcError")
