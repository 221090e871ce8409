"""Fake services for tests: in process, async, in virtual time. Each counts its own effects, for `world.use`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

from beforehand.errors import ModelError
from beforehand.loop.model import ModelCall, ModelReply, ModelRequest
from beforehand.model.usage import Usage


class Payments:
    """A fake payment service. Within `ttl` of virtual time, a known key returns the answer of its first charge."""

    def __init__(self, ttl: timedelta = timedelta(hours=24), lag: timedelta = timedelta(0)) -> None:
        self._ttl_s = ttl.total_seconds()
        self._lag_s = lag.total_seconds()
        self._known: dict[str, tuple[float, str, int, str]] = {}
        self._effects: list[str] = []

    async def charge(self, account: str, cents: int, *, key: str | None = None) -> str:
        """Charge, and return the charge's number. Raises `ValueError` on a known key with other parameters."""
        await asyncio.sleep(self._lag_s)
        now = asyncio.get_running_loop().time()
        known = self._known.get(key) if key is not None else None
        if known is not None and now < known[0] + self._ttl_s:
            if known[1:3] != (account, cents):
                raise ValueError("this key was used with other parameters")
            return known[3]
        self._effects.append(f"charge {account} {cents}")
        number = f"ch-{len(self._effects)}"
        if key is not None:
            self._known[key] = (now, account, cents, number)
        return number

    def effects(self) -> list[str]:
        """Every charge that was made."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all charges and keys."""
        self._known.clear()
        self._effects.clear()


class MailServer:
    """A fake mail server without idempotency keys. `lag` is the time until a sent mail appears in the sent folder."""

    def __init__(self, lag: timedelta = timedelta(0)) -> None:
        self._lag_s = lag.total_seconds()
        self._sent: list[tuple[float, str, str, str]] = []

    async def send(self, to: str, subject: str, *, message_id: str = "") -> None:
        """Send a mail; sending twice delivers two mails."""
        await asyncio.sleep(0)
        self._sent.append((asyncio.get_running_loop().time(), to, subject, message_id))

    async def in_sent_folder(self, message_id: str) -> bool:
        """True if the sent folder shows a mail with this Message-ID."""
        await asyncio.sleep(0)
        seen_s = asyncio.get_running_loop().time() - self._lag_s
        return any(at <= seen_s and one == message_id for at, _, _, one in self._sent)

    def effects(self) -> list[str]:
        """Every mail that was sent."""
        return [f"mail to {to}: {subject}" for _, to, subject, _ in self._sent]

    def reset(self) -> None:
        """Forget all mails."""
        self._sent.clear()


class Tickets:
    """A fake ticket system without idempotency keys. `lag` is the time until the search finds a new ticket."""

    def __init__(self, lag: timedelta = timedelta(0)) -> None:
        self._lag_s = lag.total_seconds()
        self._tickets: list[tuple[float, str, str]] = []

    async def create(self, title: str, body: str = "") -> str:
        """Create a ticket, and return its number."""
        await asyncio.sleep(0)
        self._tickets.append((asyncio.get_running_loop().time(), title, body))
        return f"T-{len(self._tickets)}"

    async def search(self, text: str) -> list[str]:
        """The numbers of the visible tickets that contain `text`."""
        await asyncio.sleep(0)
        seen_s = asyncio.get_running_loop().time() - self._lag_s
        found = enumerate(self._tickets, 1)
        return [f"T-{number}" for number, (at, *held) in found if at <= seen_s and any(text in one for one in held)]

    def effects(self) -> list[str]:
        """Every ticket that was created, by its title."""
        return [f"ticket {title}" for _, title, _ in self._tickets]

    def reset(self) -> None:
        """Forget all tickets."""
        self._tickets.clear()


class NumberTaken(Exception):
    """An entry of that number exists."""


class Calendar:
    """A fake calendar. The caller chooses the number of an entry; a second entry with that number is refused."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self._effects: list[str] = []

    async def book(self, number: str, title: str) -> None:
        """Make an entry. Raises `NumberTaken` if there is one of that number."""
        await asyncio.sleep(0)
        if number in self._entries:
            raise NumberTaken(number)
        self._entries[number] = title
        self._effects.append(f"booked {title}")

    async def find(self, number: str) -> str | None:
        """The title of an entry."""
        await asyncio.sleep(0)
        return self._entries.get(number)

    async def cancel(self, number: str) -> None:
        """Remove an entry; do nothing if it does not exist."""
        await asyncio.sleep(0)
        title = self._entries.pop(number, None)
        if title is not None:
            self._effects.append(f"cancelled {title}")

    def effects(self) -> list[str]:
        """Every entry that was made or removed."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all entries."""
        self._entries.clear()
        self._effects.clear()


class KeyValue:
    """A fake key-value store. A write counts as an effect only if it changes a value."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._effects: list[str] = []

    async def put(self, name: str, value: str) -> None:
        """Store a value."""
        await asyncio.sleep(0)
        if self._values.get(name) != value:
            self._values[name] = value
            self._effects.append(f"{name}={value}")

    async def get(self, name: str) -> str | None:
        """The value, or None."""
        await asyncio.sleep(0)
        return self._values.get(name)

    def effects(self) -> list[str]:
        """Every change."""
        return list(self._effects)

    def reset(self) -> None:
        """Forget all values."""
        self._values.clear()
        self._effects.clear()


Said: TypeAlias = str | ModelCall | tuple[ModelCall, ...] | ModelReply | Exception
"""One answer of a scripted model: a text, a call or a tuple of calls, a whole reply, or an error that it raises."""
Phrasing: TypeAlias = Said | Callable[[ModelRequest], Said]
"""One answer, or a function of the request that gives one."""


class ScriptedModel:
    """A model with given answers. The number of answers in the conversation selects the next one.

    A list of answers is used in turn when the same question is asked again; its last answer is repeated. An answer can
    also be a function of the request. Pass the model to `world.use`, so that each run begins the script anew.
    """

    def __init__(self, *script: Phrasing | list[Said], name: str = "scripted") -> None:
        self._script: list[list[Phrasing]] = [list(_phrasings(turn)) for turn in script]
        if not all(self._script):
            raise ValueError("a turn without any phrasing: give each at least one answer")
        self.name = name
        self.asked: list[ModelRequest] = []

    async def answer(self, request: ModelRequest, on_text: Callable[[str], None] = lambda _: None) -> ModelReply:
        """Return the answer to these messages, its text word by word. Raises `ModelError` at the end of the script."""
        await asyncio.sleep(0)
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn >= len(self._script):
            text = f"the script of {self.name} has {len(self._script)} answers, and the conversation {turn}"
            raise ModelError(text, code="refused", next_step="give ScriptedModel one more answer")
        phrasings = self._script[turn]
        before = self.asked.count(request)
        self.asked.append(request)
        phrasing = phrasings[min(before, len(phrasings) - 1)]
        reply = _reply_of(phrasing(request) if callable(phrasing) else phrasing)
        for place, word in enumerate(reply.text.split(" ") if reply.text else ()):
            on_text(f" {word}" if place else word)
        return reply

    def effects(self) -> list[str]:
        """Always empty: asking a model changes nothing."""
        return []

    def reset(self) -> None:
        """Begin the script anew."""
        self.asked.clear()


def _phrasings(turn: Phrasing | list[Said]) -> Sequence[Phrasing]:
    if isinstance(turn, list):
        several: list[Said] = turn  # pyright: ignore[reportUnknownVariableType]  # it forgets what the list holds
        return several
    return [turn]


def _reply_of(said: Said) -> ModelReply:
    match said:
        case Exception():
            raise said
        case ModelReply():
            return said
        case str():
            return ModelReply(said, usage=Usage(10, 5))
        case ModelCall():
            return _reply_of((said,))
        case _:
            return ModelReply("", said, "calls", usage=Usage(10, 5))
