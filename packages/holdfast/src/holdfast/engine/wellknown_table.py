"""The table of well-known exceptions: what the end of a call by exception proves about its effect.

Data only. Classes are named, never imported: a row costs nothing where its library is not installed.
`wellknown.classify` reads the table; `docs/reference/exceptions.md` is rendered from it, and the tests check
that every class still exists in its library and that real failures get the verdict written here.

The one rule behind the verdicts: *not sent* needs a failure that the library can only raise before the first
byte of the effect left this process. What an answer means (an HTTP status, an SQLSTATE, a reply to SMTP's DATA)
differs between services and is declared per tool; here it is ambiguous.
"""

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["not_sent", "ambiguous", "inner", "connecting"]


@dataclass(frozen=True, slots=True)
class Row:
    """One class of exception, subclasses included unless they have a row of their own.

    `verdict`: `inner` means that the class wraps others and proves only what they prove; `connecting` means not
    sent when the exception says that it was raised by an attempt to connect. `covers` names exceptions of the
    same library that may stand below this one as its cause: alone they would be ambiguous.
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


def _httpx(client: str, core: str) -> tuple[Row, ...]:
    """The rows of httpx and its engine, which httpx2 repeats under its own names."""
    before = (
        ("ConnectError", "no connection: refused, unresolved or failed in its TLS handshake"),
        ("ConnectTimeout", "no connection in time"),
        ("PoolTimeout", "no connection of the pool became free in time"),
        ("ProxyError", "the proxy did not open a tunnel; the request goes only through an open one"),
        ("UnsupportedProtocol", "the URL has no scheme that the client can speak"),
    )
    return (
        *(Row(f"{package}.{name}", "not_sent", why) for package in (client, core) for name, why in before),
        Row(f"{client}.InvalidURL", "not_sent", "the URL could not be read"),
        Row(f"{client}.HTTPStatusError", "ambiguous", "an answer; declare what it means with `rejections`"),
        Row(f"{client}.LocalProtocolError", "ambiguous", "also raised after headers or a part of the body left"),
        Row(f"{client}.HTTPError", "ambiguous", "every other failure may come after the request left"),
    )


STANDARD_LIBRARY: Final = (
    Row("socket.gaierror", "not_sent", "the name was not resolved"),
    Row("socket.herror", "not_sent", "the name was not resolved"),
    Row("builtins.ConnectionRefusedError", "not_sent", "nobody listens there; no connection was made"),
    Row("ssl.SSLCertVerificationError", "not_sent", "the certificate is checked before application data"),
    Row("ssl.SSLError", "ambiguous", "also raised while reading or writing"),
    Row("builtins.TimeoutError", "ambiguous", "does not say what timed out (asyncio's and socket's too)"),
    Row("builtins.ConnectionResetError", "ambiguous", "the other side may have read everything before"),
    Row("builtins.BrokenPipeError", "ambiguous", "earlier bytes may have arrived"),
    Row("builtins.ConnectionAbortedError", "ambiguous", "earlier bytes may have arrived"),
    Row("builtins.OSError", "ambiguous", "does not say whether a connection existed (unreachable hosts too)"),
    Row("builtins.BaseExceptionGroup", "ambiguous", "a task group cancels its other tasks, which leave no trace"),
    Row("asyncio.exceptions.CancelledError", "ambiguous", "the call was ended from outside, wherever it was"),
    Row("asyncio.exceptions.IncompleteReadError", "ambiguous", "an answer that ended early"),
    Row("http.client.InvalidURL", "not_sent", "the URL or port could not be read"),
    Row("http.client.HTTPException", "ambiguous", "the request may have left"),
    Row("urllib.error.URLError", "inner", "wraps what went wrong, from name resolution to sending"),
    Row("urllib.error.HTTPError", "ambiguous", "an answer; declare what it means with `rejections`"),
    Row("sqlite3.Error", "ambiguous", "earlier statements of the call may be committed, locked or not"),
)

REQUESTS: Final = (
    Row("requests.exceptions.ConnectTimeout", "not_sent", "no connection in time"),
    Row("requests.exceptions.MissingSchema", "not_sent", "the URL has no scheme"),
    Row("requests.exceptions.InvalidSchema", "not_sent", "the URL has no scheme that the client can speak"),
    Row("requests.exceptions.InvalidURL", "not_sent", "the URL could not be read"),
    Row("requests.exceptions.ConnectionError", "inner", "raised for refused connections and lost ones alike"),
    Row("requests.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    Row("requests.exceptions.ProxyError", "inner", "also raised when a proxy hangs up after the request left"),
    Row("requests.exceptions.HTTPError", "ambiguous", "an answer; declare what it means with `rejections`"),
    Row("requests.exceptions.RequestException", "ambiguous", "every other failure may come after the send"),
)

URLLIB3: Final = (
    Row("urllib3.exceptions.NewConnectionError", "not_sent", "no connection: refused, unreachable or unresolved"),
    Row("urllib3.exceptions.ConnectTimeoutError", "not_sent", "no connection in time"),
    Row("urllib3.exceptions.EmptyPoolError", "not_sent", "no connection of the pool became free in time"),
    Row("urllib3.exceptions.LocationValueError", "not_sent", "the URL could not be read"),
    Row("urllib3.exceptions.MaxRetryError", "inner", "wraps the last try; earlier tries are judged as well"),
    Row("urllib3.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    Row("urllib3.exceptions.ProxyError", "inner", "also raised when a proxy hangs up after the request left"),
    Row("urllib3.exceptions.HTTPError", "ambiguous", "every other failure may come after the request left"),
)

AIOHTTP: Final = (
    Row("aiohttp.client_exceptions.ClientConnectorError", "not_sent", "no connection, or a failed TLS handshake"),
    Row("aiohttp.client_exceptions.ConnectionTimeoutError", "not_sent", "no connection in time"),
    Row("aiohttp.client_exceptions.ClientHttpProxyError", "not_sent", "the proxy did not open a tunnel"),
    Row("aiohttp.client_exceptions.InvalidURL", "not_sent", "the URL could not be read"),
    Row("aiohttp.client_exceptions.NonHttpUrlClientError", "not_sent", "not a URL that the client can speak"),
    Row("aiohttp.client_exceptions.InvalidUrlRedirectClientError", "ambiguous", "a request was answered before"),
    Row("aiohttp.client_exceptions.NonHttpUrlRedirectClientError", "ambiguous", "a request was answered before"),
    Row("aiohttp.client_exceptions.ClientResponseError", "ambiguous", "an answer; declare it with `rejections`"),
    Row("aiohttp.client_exceptions.ClientError", "ambiguous", "every other failure may come after the send"),
)

SMTP: Final = (
    Row("smtplib.SMTPConnectError", "not_sent", "the server did not greet us; no message was begun"),
    Row("smtplib.SMTPHeloError", "not_sent", "refused before a message was begun"),
    Row("smtplib.SMTPAuthenticationError", "not_sent", "refused before a message was begun"),
    Row("smtplib.SMTPNotSupportedError", "not_sent", "the server lacks an extension; raised before DATA"),
    Row("smtplib.SMTPSenderRefused", "not_sent", "refused before DATA; the message did not leave"),
    Row("smtplib.SMTPRecipientsRefused", "not_sent", "no recipient was accepted, so DATA was never said"),
    Row(
        "smtplib.SMTPDataError",
        "ambiguous",
        "a refusal by the protocol, but the message had left, and filters behind a relay answer late or twice; "
        "declare it with `rejections` for a server you trust",
    ),
    Row("smtplib.SMTPServerDisconnected", "ambiguous", "the message may have been accepted, its answer lost"),
    Row("smtplib.SMTPException", "ambiguous", "may come after DATA"),
)

_AIOSMTPLIB_GREETING: Final = (
    "aiosmtplib.errors.SMTPServerDisconnected",
    "aiosmtplib.errors.SMTPReadTimeoutError",
)

AIOSMTPLIB: Final = (
    Row(
        "aiosmtplib.errors.SMTPConnectError",
        "not_sent",
        "no connection or no greeting; no message was begun",
        covers=_AIOSMTPLIB_GREETING,
    ),
    Row("aiosmtplib.errors.SMTPHeloError", "not_sent", "refused before a message was begun"),
    Row("aiosmtplib.errors.SMTPAuthenticationError", "not_sent", "refused before a message was begun"),
    Row("aiosmtplib.errors.SMTPNotSupported", "not_sent", "the server lacks an extension; raised before DATA"),
    Row("aiosmtplib.errors.SMTPSenderRefused", "not_sent", "refused before DATA; the message did not leave"),
    Row(
        "aiosmtplib.errors.SMTPRecipientsRefused",
        "not_sent",
        "no recipient was accepted, so DATA was never said",
        covers=("aiosmtplib.errors.SMTPRecipientRefused",),
    ),
    Row("aiosmtplib.errors.SMTPDataError", "ambiguous", "as smtplib.SMTPDataError"),
    Row("aiosmtplib.errors.SMTPServerDisconnected", "ambiguous", "the answer to the message may be what was lost"),
    Row("aiosmtplib.errors.SMTPException", "ambiguous", "may come after DATA"),
)

POSTGRES: Final = (
    Row("psycopg.errors.ConnectionTimeout", "not_sent", "no connection in time"),
    Row("psycopg.OperationalError", "connecting", "carries the failed connection only when connecting failed"),
    Row("psycopg.Error", "ambiguous", "earlier statements of the call may be committed"),
    Row("asyncpg.exceptions.InvalidPasswordError", "not_sent", "refused before a statement was accepted"),
    Row("asyncpg.exceptions.TooManyConnectionsError", "not_sent", "refused before a statement was accepted"),
    Row("asyncpg.exceptions.CannotConnectNowError", "not_sent", "refused before a statement was accepted"),
    Row("asyncpg.exceptions._base.PostgresError", "ambiguous", "earlier statements may be committed"),
    Row("asyncpg.exceptions._base.InterfaceError", "ambiguous", "earlier statements may be committed"),
)

BOTOCORE: Final = (
    Row("botocore.exceptions.EndpointConnectionError", "not_sent", "no connection: refused or unresolved"),
    Row("botocore.exceptions.ConnectTimeoutError", "not_sent", "no connection in time"),
    Row("botocore.exceptions.NoCredentialsError", "not_sent", "the request could not be signed"),
    Row("botocore.exceptions.NoRegionError", "not_sent", "no endpoint was known"),
    Row("botocore.exceptions.ParamValidationError", "not_sent", "the request was refused by the client itself"),
    Row("botocore.exceptions.SSLError", "inner", "raised for handshakes and for later failures alike"),
    Row("botocore.exceptions.ProxyConnectionError", "inner", "also raised when a proxy hangs up after the send"),
    Row("botocore.exceptions.ClientError", "ambiguous", "an answer; declare what it means with `rejections`"),
    Row("botocore.exceptions.BotoCoreError", "ambiguous", "every other failure may come after the request left"),
)

GRPC: Final = (
    Row(
        "grpc.RpcError",
        "ambiguous",
        "UNAVAILABLE is a refused connection and a connection lost in the middle alike; declare codes with "
        "`rejections`",
    ),
)

TABLE: Final[tuple[Row, ...]] = (
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

BY_NAME: Final[dict[str, Row]] = {row.name: row for row in TABLE}

# Packages whose code stands between a tool and its socket: an exception that one of them caught belongs to the
# failure it then reported. What tool code caught belongs to something the tool did before.
CLIENT_PACKAGES: Final = frozenset(
    {row.name.partition(".")[0] for row in TABLE} - {"builtins"} | {"anyio", "trio", "aiohappyeyeballs"}
)

# Packages that call again what has failed. Below them a try may hide earlier tries that were sent.
RETRYING_PACKAGES: Final = frozenset(
    {"aiohttp_retry", "backoff", "httpx_retries", "retry", "retrying", "stamina", "tenacity"}
)
