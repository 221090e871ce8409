"""The services of the simulated world: what each promises about keys and reading back, and what it really did.

A service keeps the truth: the list of effects that really happened, with the operation that asked for each.
Only the checker reads that. Tools see answers, and what a service shows when it is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from simulator.draws import Draws


class Capabilities(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a service promises. Durations in milliseconds.

    `key`: whether it dedupes on a key, and `ttl_ms` for how long (None: for ever); `mismatch`, `stores` and
    `in_progress` as in `beforehand.Key`. `read_back`: how its effects can be found again. `lag_ms`: how long an
    effect may stay invisible; `late_ms`: how long after its arrival a request may still take effect.
    `natural`: an effect sets a state, and setting it twice changes nothing. `answers_later`: the effect is
    announced by a webhook after the answer. `accepts`: a request is only taken in, and what becomes of it is told
    later, under our key or under a number of the service: see `offices.py`.
    """

    name: str
    key: bool = False
    ttl_ms: int | None = None
    mismatch: Literal["error", "silent"] = "error"
    stores: Literal["success", "all"] = "success"
    in_progress: Literal["rejects", "blocks", "runs_twice"] = "rejects"
    read_back: Literal["", "marker", "key", "state"] = ""
    lag_ms: int = 0
    late_ms: int = 0
    natural: bool = False
    answers_later: bool = False
    accepts: Literal["", "under our key", "under its number"] = ""


MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
CATALOGUE: Final[Mapping[str, Capabilities]] = {
    one.name: one
    for one in (
        Capabilities("charge", key=True, ttl_ms=3 * MINUTE, stores="all", late_ms=8_000),
        Capabilities("pay", key=True, in_progress="blocks", late_ms=20_000),
        Capabilities("mail", read_back="marker", lag_ms=60_000, late_ms=20_000),
        Capabilities("ticket", read_back="marker", lag_ms=10_000, late_ms=10_000),
        Capabilities("switch", natural=True, read_back="state"),
        Capabilities("note", natural=True),
        Capabilities("ship"),
        Capabilities("order", key=True, read_back="key", lag_ms=5_000, late_ms=5_000),
        Capabilities("book", key=True, ttl_ms=24 * HOUR, mismatch="silent"),
        Capabilities("transfer", key=True, answers_later=True),
        Capabilities("look"),
        Capabilities("seat", key=True, late_ms=8_000),
        Capabilities("unseat", natural=True),
        Capabilities("room", key=True, stores="all"),
        Capabilities("take", key=True, stores="all", late_ms=5_000),
        Capabilities("leave", natural=True),
        Capabilities("gift", read_back="marker", lag_ms=5_000, late_ms=5_000),
        Capabilities("gift_back", key=True),
        Capabilities("berth", key=True, read_back="key", lag_ms=5_000, late_ms=5_000),
        Capabilities("unberth", natural=True),
        Capabilities("guide"),
        Capabilities("unguide"),
        Capabilities("post", key=True, late_ms=5_000),
        Capabilities("send"),
        Capabilities("sign", key=True, late_ms=5_000),
        Capabilities("rent", key=True, stores="all", late_ms=5_000, accepts="under our key"),
        Capabilities("visa", read_back="marker", lag_ms=5_000, late_ms=5_000, accepts="under its number"),
        Capabilities("permit", accepts="under its number"),
        Capabilities("dare"),
        Capabilities("wire", key=True, late_ms=5_000),
        Capabilities("grant"),
        Capabilities("adjust", key=True, read_back="key", lag_ms=5_000, late_ms=5_000),
        Capabilities("spend", key=True, late_ms=5_000),
        Capabilities("buy", key=True, late_ms=5_000),
        Capabilities("label", natural=True, late_ms=15_000),
        Capabilities("build", key=True, late_ms=3 * MINUTE),
        Capabilities("dispatch", key=True, late_ms=5_000),
        Capabilities("haul", read_back="marker", lag_ms=5_000, late_ms=5_000),
        Capabilities("risk", key=True),
        Capabilities("lend"),
        Capabilities("fund", key=True, late_ms=5_000),
        Capabilities("vouch"),
    )
}


class Request(msgspec.Struct, frozen=True):
    """What a tool sends. `operation` and `attempt` are headers for the checker; services do not look at them."""

    service: str
    operation: str
    attempt: int
    key: str
    marker: str
    arguments: Mapping[str, str]

    @property
    def thing(self) -> str:
        """What the effect is about."""
        return self.arguments.get("thing", "")


class Reply(msgspec.Struct, frozen=True):
    """What comes back: an HTTP-like status, and a body."""

    status: int
    body: str = ""
    retry_after: float | None = None


class Effect(msgspec.Struct, frozen=True):
    """Something that really happened. `operation` is empty where another party did it."""

    number: int
    at_ms: int
    service: str
    operation: str
    attempt: int
    thing: str
    value: str
    key: str = ""
    marker: str = ""


class _Remembered(msgspec.Struct):
    """What a service keeps under a key."""

    arguments: Mapping[str, str]
    since_ms: int
    reply: Reply | None = None  # None while the first request is still worked on


class Service:
    """One service. `happened` hears every effect, `later` runs something after some milliseconds."""

    def __init__(
        self,
        able: Capabilities,
        draws: Draws,
        now: Callable[[], int],
        later: Callable[[int, Callable[[], None]], None],
        happened: Callable[[Effect], None],
    ) -> None:
        self.able: Final = able
        self.effects: list[Effect] = []
        self.in_flight: dict[str, int] = {}
        """Requests that were taken in and may still take effect, by operation."""
        self._draws = draws
        self._now = now
        self._later = later
        self._happened = happened
        self.accept: Callable[[Request], Reply] = self.do
        """What becomes of a request that was taken in: the effect, unless an office only accepts it."""
        self._keys: dict[str, _Remembered] = {}
        self._waiting: dict[str, list[Callable[[Reply], None]]] = {}

    def arrive(self, request: Request, delay_ms: int, answer: Callable[[Reply], None], *, fail: int = 0) -> None:
        """Take a request in. Its effect comes `delay_ms` later; with `fail` it happens and that status is answered."""
        kept = self._kept(request)
        if kept is not None:
            self._again(request, kept, answer)
            return
        if self.able.key:
            self._keys[request.key] = _Remembered(request.arguments, self._now())
        self.flying(request, 1)

        def take_effect() -> None:
            self.flying(request, -1)
            reply = self.accept(request)
            if fail:
                reply = Reply(fail, "internal error")
            self._keep(request, reply)
            answer(reply)
            for other in self._waiting.pop(request.key, []):
                other(reply)

        if delay_ms:
            self._later(delay_ms, take_effect)
        else:
            take_effect()

    def refuse(self, request: Request, status: int) -> Reply:
        """Refuse it; a service that stores every answer stores that one too."""
        kept = self._kept(request)
        if kept is not None and kept.reply is not None:
            return kept.reply
        if kept is not None and self.able.stores == "all":
            return Reply(409, "in progress")  # a key has one answer, and its first request is still worked on
        reply = Reply(status, "refused")
        if self.able.key and self.able.stores == "all":
            self._keys[request.key] = _Remembered(request.arguments, self._now(), reply)
        return reply

    def do(self, request: Request) -> Reply:
        """The effect, now."""
        number = len(self.effects) + 1
        value = f"{self.able.name}-{number}"
        self._append(request.operation, request.attempt, request, value)
        return Reply(200, value)

    def by_somebody(self, thing: str, value: str) -> None:
        """Another actor sets the same thing."""
        self._append("", 0, Request(self.able.name, "", 0, "", "", {"thing": thing}), value)

    def find(self, *, marker: str = "", key: str = "") -> Effect | None:
        """Read back, from a replica that may be behind by up to the promised lag."""
        seen_until = self._now() - round(self._draws.of("lag", self.able.name, marker, key).random() * self.able.lag_ms)
        for effect in self.effects:
            named = (marker and effect.marker == marker) or (key and effect.key == key)
            if named and effect.at_ms <= seen_until:
                return effect
        return None

    def state(self, thing: str) -> str:
        """The value that was set last."""
        return next((effect.value for effect in reversed(self.effects) if effect.thing == thing), "")

    def _append(self, operation: str, attempt: int, request: Request, value: str) -> None:
        shown = request.arguments.get("value", value) if self.able.natural and operation else value
        effect = Effect(
            len(self.effects) + 1, self._now(), self.able.name, operation, attempt, request.thing, shown,
            request.key, request.marker,
        )  # fmt: skip
        self.effects.append(effect)
        self._happened(effect)

    def flying(self, request: Request, change: int) -> None:
        """One more, or one less, of the requests of an operation may still take effect."""
        self.in_flight[request.operation] = self.in_flight.get(request.operation, 0) + change

    def _kept(self, request: Request) -> _Remembered | None:
        if not self.able.key:
            return None
        kept = self._keys.get(request.key)
        forgotten = kept is not None and self.able.ttl_ms is not None and self._now() - kept.since_ms > self.able.ttl_ms
        return None if forgotten else kept

    def _keep(self, request: Request, reply: Reply) -> None:
        if not self.able.key:
            return
        if reply.status < 300 or self.able.stores == "all":
            self._keys[request.key].reply = reply
        else:
            done = Reply(200, self.effects[-1].value)
            self._keys[request.key].reply = done  # the effect stands: the key answers with it from now on

    def _again(self, request: Request, kept: _Remembered, answer: Callable[[Reply], None]) -> None:
        if kept.arguments != request.arguments and self.able.mismatch == "error":
            answer(Reply(422, "this key came with other parameters"))
        elif kept.reply is not None:
            answer(kept.reply)
        elif self.able.in_progress == "blocks":
            self._waiting.setdefault(request.key, []).append(answer)
        else:
            answer(Reply(409, "in progress"))
