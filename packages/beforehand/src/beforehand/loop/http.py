"""Requests to the providers of models: one POST, answered by a stream of events, and the class of each error.

A client raises `ModelError` and does not try again by itself: `run.decide` counts the tries, and waits as long as the
provider asks.
"""

from __future__ import annotations

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import msgspec

from beforehand.engine.exceptions.http import seconds_asked
from beforehand.errors import ModelError, UsageError
from beforehand.installation import needing
from beforehand.loop.model import ChatMessage, ModelReply, ModelRequest, OnText, Stop
from beforehand.model.usage import Usage, usage_of

if TYPE_CHECKING:
    import httpx2

S = TypeVar("S")
E = TypeVar("E")
CONNECT_S: Final = 10.0
SHOWN: Final = 300
MOST_BYTES: Final = 32 * 1024 * 1024  # of one answer, with what its protocol adds: no server can fill the memory
MOST_OF_ERROR: Final = 64 * 1024
_TOO_LONG: Final = ("context_length", "context window", "prompt is too long", "too many tokens", "maximum context")


class ProviderAddress(msgspec.Struct, frozen=True):
    """A provider: its address, its headers, where its key comes from, and how long it may stay silent.

    `http` is a client of your own, to share connections or to go through a proxy; else each call opens one.
    """

    url: str
    headers: Mapping[str, str]
    key_name: str = ""
    silence: timedelta = timedelta(seconds=60)
    http: httpx2.AsyncClient | None = None


class ProviderClient(ABC):
    """A model behind the API of a provider; each subclass speaks one protocol."""

    URL: ClassVar[str]
    SERVICE: ClassVar[str]
    """The provider's name at its own address."""
    KEY: ClassVar[str]
    """The environment variable with the key."""
    NEEDS_KEY: ClassVar[bool] = True
    """False if a server at another `base_url` may need no key."""
    PATH: ClassVar[str]
    """The path of the answers below the address, in which `{model}` is the name of the model."""
    EVENT: ClassVar[type[msgspec.Struct]]
    ANSWER: ClassVar[type[StreamedAnswer[Any]]]
    LAST: ClassVar[bytes | None] = None
    """The data that ends the stream, where the protocol has such."""

    def __init__(
        self,
        name: str,
        *,
        key: str | None = None,
        base_url: str | None = None,
        silence: timedelta = timedelta(seconds=60),
        http: httpx2.AsyncClient | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        url = self.URL if base_url is None else base_url
        self.name = name
        headers = self._headers(key_of(self.KEY, key, needed=self.NEEDS_KEY or url == self.URL))
        self._provider = ProviderAddress(url, headers, self.KEY, silence, http)
        self.service = self.SERVICE if url == self.URL else _shown_address(url)
        self._settings = settings or {}

    @staticmethod
    @abstractmethod
    def _headers(key: str) -> dict[str, str]:
        """The headers that authenticate with this key, which may be empty."""

    @abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """The request in the form of the protocol."""

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """The answer to the request. Raises `ModelError`."""
        collected = self.ANSWER(self._provider, self.service, on_text)
        try:
            async for data in events(self._provider, self.PATH.format(model=self.name), self._body(request)):
                if data == self.LAST:
                    break
                collected.add(read(data, self.EVENT, self._provider))
                if collected.over:
                    break
            return collected.reply()
        except ModelError as error:
            error.reply = collected.so_far()  # what it used is recorded
            raise


class StreamedAnswer(ABC, Generic[E]):
    """An answer as its events arrive. `over`: no further one counts."""

    over = False

    def __init__(self, provider: ProviderAddress, service: str, on_text: OnText) -> None:
        self._provider = provider
        self._service = service
        self._on_text = on_text
        self._model = ""
        self._id: Any = ""
        self._counted: Any = None

    @abstractmethod
    def add(self, event: E) -> None:
        """Take one event. Raises `ModelError` for an error that the provider reports in the stream."""

    @abstractmethod
    def reply(self) -> ModelReply:
        """The whole answer. Raises `ModelError` if the stream ended before it did."""

    def _used(self) -> Usage:
        """The usage as far as it is known."""
        return usage_of({"usage": self._counted, "request": self._id, "service": self._service})

    def so_far(self) -> ModelReply:
        """The usage of an answer that cannot be used."""
        return ModelReply(usage=self._used(), model=self._model)

    def _stopped(self, word: str, field: str, stops: Mapping[str, Stop]) -> Stop:
        """Why the model ended its answer, from the provider's word in that field. Raises `ModelError`."""
        if not word:
            raise cut(self._provider)
        if word not in stops:
            raise malformed(self._provider, f"it ended with {field}={word!r}")
        return stops[word]


def key_of(name: str, given: str | None, *, needed: bool) -> str:
    """The key that was given, or that of the environment. Raises `UsageError` if one is needed and missing."""
    key = given if given is not None else os.environ.get(name, "")
    if not key.strip() and needed:
        raise UsageError(
            f"the model needs a key, and {name} is not set",
            known="nothing was sent",
            next_step=f"export {name}=..., or pass key=; in tests use beforehand.testing.services.ScriptedModel",
        )
    if not key.isascii() or any(letter.isspace() for letter in key.strip()):
        raise UsageError(
            f"the key of {name} contains characters that keys never have", next_step="copy the key again, in one line"
        )
    return key.strip()


async def events(provider: ProviderAddress, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes]:
    """The data of each event that the provider answers with. Raises `ModelError`."""
    with needing("clients of models need httpx2", "openai"):
        import httpx2  # noqa: PLC0415 - an extra
    client = provider.http or httpx2.AsyncClient(verify=_trusted())
    timeout = httpx2.Timeout(provider.silence.total_seconds(), connect=CONNECT_S)
    try:
        request = client.build_request(
            "POST", provider.url.rstrip("/") + path, json=dict(body), headers=dict(provider.headers), timeout=timeout
        )
        answer = await client.send(request, stream=True)
        try:
            if answer.status_code != 200:
                raise error_of(provider, answer.status_code, answer.headers, await _beginning(answer))
            async for data in _data(provider, answer):
                yield data
        finally:
            await answer.aclose()
    except httpx2.HTTPError as error:
        text = str(error) or f"silent for {provider.silence.total_seconds():g} s"
        raise ModelError(
            f"{provider.url} did not answer: {type(error).__name__}: {text}", code="unavailable",
            known="no answer was received; the provider may count it", next_step="it is asked again",
        ) from error  # fmt: skip
    except httpx2.InvalidURL as error:
        raise UsageError(
            f"{provider.url!r} is not the address of a model", next_step="pass base_url=https://..."
        ) from error
    finally:
        if provider.http is None:
            await client.aclose()


async def _data(provider: ProviderAddress, answer: httpx2.Response) -> AsyncGenerator[bytes]:
    """The data of server-sent events. One that the end of the stream cuts is not given."""
    lines: list[bytes] = []
    async for line in _lines(provider, answer):
        if not line:
            if lines:
                yield b"\n".join(lines)
            lines = []
        elif line.startswith(b"data:"):
            lines.append(line.removeprefix(b"data:").removeprefix(b" "))


async def _lines(provider: ProviderAddress, answer: httpx2.Response) -> AsyncGenerator[bytes]:
    """The lines of a stream of events: CR and LF end them, and no other character does (JSON may contain U+2028).

    Raises `ModelError` for an answer that does not end.
    """
    size, parts, after_cr = 0, list[bytes](), False
    async for chunk in answer.aiter_bytes():
        size += len(chunk)
        if size > MOST_BYTES:
            raise malformed(provider, f"it is longer than {MOST_BYTES:,} bytes")
        for line in (chunk.removeprefix(b"\n") if after_cr else chunk).splitlines(keepends=True):
            parts.append(line)
            if line.endswith((b"\r", b"\n")):
                yield b"".join(parts).rstrip(b"\r\n")
                parts.clear()
        after_cr = chunk.endswith(b"\r")


async def _beginning(answer: httpx2.Response) -> bytes:
    """The beginning of an answer that is an error."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) >= MOST_OF_ERROR:
            break
    return body[:MOST_OF_ERROR]


def read(data: bytes, kind: type[S], provider: ProviderAddress) -> S:
    """The event. Raises `ModelError` for one that is not as the provider's protocol says."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise malformed(provider, f"{error}: {data[:SHOWN].decode(errors='replace')}") from error


def malformed(provider: ProviderAddress, found: str) -> ModelError:
    """The error for an answer that is not as the protocol says."""
    return ModelError(
        f"the answer of {provider.url} is malformed: {found}", code="malformed",
        known="no call of it was performed", next_step="it is asked again; then check base_url= and the model",
    )  # fmt: skip


def cut(provider: ProviderAddress) -> ModelError:
    """The error for a stream that ended before the answer did."""
    return ModelError(
        f"the answer of {provider.url} was cut", code="unavailable",
        known="no call of it was performed; the provider may count it", next_step="it is asked again",
    )  # fmt: skip


def error_of(provider: ProviderAddress, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error that a status stands for, with what the provider says about it."""
    detail = _error_detail(body)
    text = f"{provider.url} answered {status}: {detail}"
    if status in {401, 403}:
        return ModelError(text, code="unauthorized", known="nothing was done", next_step=f"check {provider.key_name}")
    if status == 429:
        wait = seconds_asked(headers.get("retry-after"), headers.get("date"))
        return ModelError(text, code="rate_limited", retry_after=wait, next_step="it is asked again later")
    if status in {408, 409, 425} or status >= 500:
        wait = seconds_asked(headers.get("retry-after"), headers.get("date"))
        return ModelError(text, code="unavailable", retry_after=wait, next_step="it is asked again")
    if status == 413 or any(sign in detail.lower() for sign in _TOO_LONG):
        return ModelError(
            text, code="too_long", next_step="compact sooner: ModelLoop(compaction=Compaction(above=...))"
        )
    return ModelError(text, code="refused", known="nothing was done", next_step="check the model's name and base_url=")


def turns_of(
    messages: tuple[ChatMessage, ...], assistant: str, field: str, parts: Callable[[ChatMessage], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The messages in turns of the user and the model, each with a list of parts. Answers to calls are the user's."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = assistant if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1][field] += parts(message)
        else:
            turns.append({"role": role, field: parts(message)})
    return turns


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call as an object, for providers that want one; other arguments are shown as text."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"not_json": text}


def _shown_address(url: str) -> str:
    """The address without the parts that can hold a secret: a user, a query, a fragment."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0].partition('#')[0]}".rstrip("/")


def _error_detail(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body)["error"]
        detail = f"{error.get('code') or error.get('type') or error.get('status') or ''} {error.get('message', '')}"
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        detail = body.decode(errors="replace")
    return " ".join(detail.split())[:SHOWN] or "nothing"


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a call of this code."""
    return ssl.create_default_context()
