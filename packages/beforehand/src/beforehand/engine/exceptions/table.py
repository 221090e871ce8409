"""The table of well-known exceptions: what the end of a call by exception proves about its effect.

Data only. Classes are named, never imported: a row costs nothing where its library is not installed.
`classify` reads the table; `docs/reference/exceptions.md` is rendered from it, and the tests check
that every class still exists in its library and that real failures get the verdict written here.

The one rule behind the verdicts: *not sent* needs a failure that the library can only raise before the first
byte of the effect left this process. What an answer means (an HTTP status, an SQLSTATE, a reply to SMTP's DATA)
differs between services and is declared per tool; here it is ambiguous.
"""

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["not_sent", "ambiguous", "inner", "connecting"]


@dataclass(frozen=True, slots=True)
class ExceptionRule:
    """One class of exception, subclasses included unless they have a row of their own.

    `verdict`: `inner` means that the class wraps others and proves only what they prove; `connecting` means not
    sent when the exception says that it was raised by an attempt to connect. `covers` names exceptions of the
    same library that may be the cause of this one: alone they would be ambiguous.
    """

    name: str
    verdict: Verdict
    why: str
    covers: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """The distribution or standard module that raises it."""
        top = self.name.partition(".")[0]
        return "Python" if top in PYTHON else top


# Modules of the standard library that have rows. Their exceptions are the ones that libraries wrap.
PYTHON: Final = frozenset({"asyncio", "builtins", "http", "smtplib", "socket", "sqlite3", "ssl", "urllib"})


def _httpx(client: str, core: str) -> tuple[ExceptionRule, ...]:
    """The rows of httpx and its engine, which httpx2 repeats under its own names."""
    before = (
        ("ConnectError", "no connection: refused, unresolved or failed in its TLS handshake"),
        ("ConnectTimeout", "no connection in time"),
        ("PoolTimeout", "no connection of the pool became free in time"),
        ("ProxyError", "the proxy did not open a tunnel; the request goes only through an open one"),
        ("UnsupportedProtocol", "the URL has no scheme that the client can speak"),
    )
    return (
        *(ExceptionRule(f"{package}.{name}", "not_sent", why) for package in (client, core) for name, why in before),
        ExceptionRule(f"{client}.InvalidURL", "not_sent", "the URL could not be read"),
        ExceptionRule(f"{client}.HTTPStatusError", "ambiguous", "an answer; declare what it means with `rejections`"),
        ExceptionRule(
            f"{client}.LocalProtocolError", "ambiguous", "also raised after headers or a part of the body left"
        ),
        ExceptionRule(f"{client}.HTTPError", "ambiguous", "every other failure may come after the request left"),
    )


STANDARD_LIBRARY: Final = (
    ExceptionRule("socket.gaierror", "not_sent", "the name was not resolved"),
    ExceptionRule("socket.herror", "not_sent", "the name was not resolved"),
    ExceptionRule("builtins.ConnectionRefusedError", "not_sent", "no process listens there; no connection was made"),
    ExceptionRule("ssl.SSLCertVerificationError", "not_sent", "the certificate is checked before application data"),
    ExceptionRule("ssl.SSLError", "ambiguous", "also raised while reading or writing"),
    ExceptionRule("builtins.TimeoutError", "ambiguous", "does not say what timed out (asyncio's and socket's too)"),
    ExceptionRule("builtins.ConnectionResetError", "ambiguous", "the other side may have read everything before"),
    ExceptionRule("builtins.BrokenPipeError", "ambiguous", "earlier bytes may have arrived"),
    ExceptionRule("builtins.ConnectionAbortedError", "ambiguous", "earlier bytes may have arrived"),
    ExceptionRule("builtins.OSError", "ambiguous", "does not say whether a connection existed (unreachable hosts too)"),
    ExceptionRule(
        "builtins.BaseExceptionGroup", "ambiguous", "a task group cancels its other tasks, which leave no trace"
    ),
    ExceptionRule("asyncio.exceptions.CancelledError", "ambiguous", "the call was ended from outside, wherever it was"),
    ExceptionRule("asyncio.exceptions.IncompleteReadError", "ambiguous", "an answer that ended early"),
    ExceptionRule("http.client.InvalidURL", "not_sent", "the URL or port could not be read"),
    ExceptionRule("http.client.HTTPException", "ambiguous", "the request may have left"),
    ExceptionRule("urllib.error.URLError", "inner", "wraps what went wrong, from name resolution to sending"),
    ExceptionRule("urllib.error.HTTPError", "ambiguous", "an answer; declare what it means with `rejections`"),
    ExceptionRule("sqlite3.Error", "ambiguous", "earlier statements of the call may be committed, locked or not"),
)

REQUESTS: Final = (
    ExceptionRule("requests.exceptions.ConnectTimeout", "not_sent", "no connection in time"),
    ExceptionRule("requests.exceptions.MissingSchema", "not_sent", "the URL has no scheme"),
    ExceptionRule("requests.exceptions.InvalidSchema", "not_sent", "the URL has no scheme that the client can speak"),
    ExceptionRule("requests.exceptions.InvalidURL", "not_sent", "the URL could not be read"),
    ExceptionRule("requests.exceptions.ConnectionError", "inner", "raised for refused connections and lost ones alike"),
    ExceptionRule("requests.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    ExceptionRule(
        "requests.exceptions.ProxyError", "inner", "also raised when a proxy hangs up after the request left"
    ),
    ExceptionRule("requests.exceptions.HTTPError", "ambiguous", "an answer; declare what it means with `rejections`"),
    ExceptionRule("requests.exceptions.RequestException", "ambiguous", "every other failure may come after the send"),
)

URLLIB3: Final = (
    ExceptionRule(
        "urllib3.exceptions.NewConnectionError", "not_sent", "no connection: refused, unreachable or unresolved"
    ),
    ExceptionRule("urllib3.exceptions.ConnectTimeoutError", "not_sent", "no connection in time"),
    ExceptionRule("urllib3.exceptions.EmptyPoolError", "not_sent", "no connection of the pool became free in time"),
    ExceptionRule("urllib3.exceptions.LocationValueError", "not_sent", "the URL could not be read"),
    ExceptionRule("urllib3.exceptions.MaxRetryError", "inner", "wraps the last try; earlier tries are judged as well"),
    ExceptionRule("urllib3.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    ExceptionRule("urllib3.exceptions.ProxyError", "inner", "also raised when a proxy hangs up after the request left"),
    ExceptionRule("urllib3.exceptions.HTTPError", "ambiguous", "every other failure may come after the request left"),
)

AIOHTTP: Final = (
    ExceptionRule(
        "aiohttp.client_exceptions.ClientConnectorError", "not_sent", "no connection, or a failed TLS handshake"
    ),
    ExceptionRule("aiohttp.client_exceptions.ConnectionTimeoutError", "not_sent", "no connection in time"),
    ExceptionRule("aiohttp.client_exceptions.ClientHttpProxyError", "not_sent", "the proxy did not open a tunnel"),
    ExceptionRule("aiohttp.client_exceptions.InvalidURL", "not_sent", "the URL could not be read"),
    ExceptionRule("aiohttp.client_exceptions.NonHttpUrlClientError", "not_sent", "not a URL that the client can speak"),
    ExceptionRule(
        "aiohttp.client_exceptions.InvalidUrlRedirectClientError", "ambiguous", "a request was answered before"
    ),
    ExceptionRule(
        "aiohttp.client_exceptions.NonHttpUrlRedirectClientError", "ambiguous", "a request was answered before"
    ),
    ExceptionRule(
        "aiohttp.client_exceptions.ClientResponseError", "ambiguous", "an answer; declare it with `rejections`"
    ),
    ExceptionRule("aiohttp.client_exceptions.ClientError", "ambiguous", "every other failure may come after the send"),
)

SMTP: Final = (
    ExceptionRule("smtplib.SMTPConnectError", "not_sent", "the server did not greet us; no message was begun"),
    ExceptionRule("smtplib.SMTPHeloError", "not_sent", "refused before a message was begun"),
    ExceptionRule("smtplib.SMTPAuthenticationError", "not_sent", "refused before a message was begun"),
    ExceptionRule("smtplib.SMTPNotSupportedError", "not_sent", "the server lacks an extension; raised before DATA"),
    ExceptionRule("smtplib.SMTPSenderRefused", "not_sent", "refused before DATA; the message did not leave"),
    ExceptionRule("smtplib.SMTPRecipientsRefused", "not_sent", "no recipient was accepted, so DATA was never sent"),
    ExceptionRule(
        "smtplib.SMTPDataError",
        "ambiguous",
        "a refusal by the protocol, but the message had left, and filters behind a relay answer late or twice; "
        "declare it with `rejections` for a server you trust",
    ),
    ExceptionRule("smtplib.SMTPServerDisconnected", "ambiguous", "the message may have been accepted, its answer lost"),
    ExceptionRule("smtplib.SMTPException", "ambiguous", "may come after DATA"),
)

_AIOSMTPLIB_GREETING: Final = ("aiosmtplib.errors.SMTPServerDisconnected", "aiosmtplib.errors.SMTPReadTimeoutError")

AIOSMTPLIB: Final = (
    ExceptionRule(
        "aiosmtplib.errors.SMTPConnectError",
        "not_sent",
        "no connection or no greeting; no message was begun",
        covers=_AIOSMTPLIB_GREETING,
    ),
    ExceptionRule("aiosmtplib.errors.SMTPHeloError", "not_sent", "refused before a message was begun"),
    ExceptionRule("aiosmtplib.errors.SMTPAuthenticationError", "not_sent", "refused before a message was begun"),
    ExceptionRule(
        "aiosmtplib.errors.SMTPNotSupported", "not_sent", "the server lacks an extension; raised before DATA"
    ),
    ExceptionRule("aiosmtplib.errors.SMTPSenderRefused", "not_sent", "refused before DATA; the message did not leave"),
    ExceptionRule(
        "aiosmtplib.errors.SMTPRecipientsRefused",
        "not_sent",
        "no recipient was accepted, so DATA was never sent",
        covers=("aiosmtplib.errors.SMTPRecipientRefused",),
    ),
    ExceptionRule("aiosmtplib.errors.SMTPDataError", "ambiguous", "as smtplib.SMTPDataError"),
    ExceptionRule(
        "aiosmtplib.errors.SMTPServerDisconnected", "ambiguous", "the answer to the message may be what was lost"
    ),
    ExceptionRule("aiosmtplib.errors.SMTPException", "ambiguous", "may come after DATA"),
)

POSTGRES: Final = (
    ExceptionRule("psycopg.errors.ConnectionTimeout", "not_sent", "no connection in time"),
    ExceptionRule(
        "psycopg.OperationalError", "connecting", "carries the failed connection only when connecting failed"
    ),
    ExceptionRule("psycopg.Error", "ambiguous", "earlier statements of the call may be committed"),
    ExceptionRule("asyncpg.exceptions.InvalidPasswordError", "not_sent", "refused before a statement was accepted"),
    ExceptionRule("asyncpg.exceptions.TooManyConnectionsError", "not_sent", "refused before a statement was accepted"),
    ExceptionRule("asyncpg.exceptions.CannotConnectNowError", "not_sent", "refused before a statement was accepted"),
    ExceptionRule("asyncpg.exceptions._base.PostgresError", "ambiguous", "earlier statements may be committed"),
    ExceptionRule("asyncpg.exceptions._base.InterfaceError", "ambiguous", "earlier statements may be committed"),
)

BOTOCORE: Final = (
    ExceptionRule("botocore.exceptions.EndpointConnectionError", "not_sent", "no connection: refused or unresolved"),
    ExceptionRule("botocore.exceptions.ConnectTimeoutError", "not_sent", "no connection in time"),
    ExceptionRule("botocore.exceptions.NoCredentialsError", "not_sent", "the request could not be signed"),
    ExceptionRule("botocore.exceptions.NoRegionError", "not_sent", "no endpoint was known"),
    ExceptionRule(
        "botocore.exceptions.ParamValidationError", "not_sent", "the request was refused by the client itself"
    ),
    ExceptionRule("botocore.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    ExceptionRule(
        "botocore.exceptions.ProxyConnectionError", "inner", "also raised when a proxy hangs up after the send"
    ),
    ExceptionRule("botocore.exceptions.ClientError", "ambiguous", "an answer; declare what it means with `rejections`"),
    ExceptionRule(
        "botocore.exceptions.BotoCoreError", "ambiguous", "every other failure may come after the request left"
    ),
)

GRPC: Final = (
    ExceptionRule(
        "grpc.RpcError",
        "ambiguous",
        "UNAVAILABLE is a refused connection and a connection lost in the middle alike; declare codes with "
        "`rejections`",
    ),
)

TABLE: Final[tuple[ExceptionRule, ...]] = (
    *STANDARD_LIBRARY,
    *_httpx("httpx", "httpcore"),
    *_httpx("httpx2", "httpcore2"),
    *REQUESTS,
    *URLLIB3,
    *AIOHTTP,
    *SMTP,
    *AIOSMTPLIB,
    *POSTGRES,
    *BOTOCORE,
    *GRPC,
)

BY_NAME: Final[dict[str, ExceptionRule]] = {row.name: row for row in TABLE}

# Packages whose code is between a tool and its socket: an exception that one of them caught belongs to the
# failure it then reported. What tool code caught belongs to something the tool did before.
CLIENT_PACKAGES: Final = frozenset(
    {row.name.partition(".")[0] for row in TABLE} - {"builtins"} | {"anyio", "trio", "aiohappyeyeballs"}
)

# Packages that call again what has failed. Below them a try may hide earlier tries that were sent.
RETRYING_PACKAGES: Final = frozenset(
    {"aiohttp_retry", "backoff", "httpx_retries", "retry", "retrying", "stamina", "tenacity"}
)
