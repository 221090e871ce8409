"""Offices: services that accept a request now and answer it later, by unreliable webhooks.

An office keeps its word (what it announces is what it did), and nothing else: its messages come before its own
response was read, twice, out of order, under a number that no run waits for, long after every deadline, or never. As
senders of webhooks do, it sends a message again until a process acknowledges it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from simulator.services.service import Reply, Request, Service

if TYPE_CHECKING:
    from simulator.world import World

Word: TypeAlias = Literal["pending", "succeeded", "failed"]
MINUTE: Final = 60_000
PAUSES_MS: Final = (2_000, 10_000, 30_000, 60_000)
"""How long a sender waits before it sends a message again; the last one from then on."""

LONGEST_MS: Final = MINUTE
"""An office that is not held up decides within that time."""

BROUGHT_MS: Final = MINUTE
"""The time in which housekeeping, every 20 s here, brings an answer to a run that ended before it read its commands."""

OVERDUE_MS: Final = 5 * MINUTE
"""Longer than any deadline for an answer here."""

ANSWERED: Final = "the office has answered"
"""What an office says in every answer: the checker tells its words from those of our own calls by that."""

_RANK: Final[dict[Word, int]] = {"failed": 0, "pending": 1, "succeeded": 2}


class Application(msgspec.Struct):
    """A request that an office has accepted, and what has become of it."""

    number: str
    key: str
    request: Request
    since_ms: int
    status: Word = "pending"
    value: str = ""
    announced: bool = True
    recalled: Message | None = None
    """The message that took its success back."""


class Message(msgspec.Struct):
    """One webhook. `heard`: it was acknowledged, and is not sent again. `lost`: with the journal that it was in."""

    application: Application
    key: str
    id: str
    status: Word
    value: str = ""
    heard: bool = False
    refused: bool = False
    lost: bool = False
    heard_ms: int = 0
    """When it was acknowledged."""
    found: str | None = None
    """What was on record about its operation when it came for the first time."""
    then: Callable[[], None] | None = None
    """What its sender does as soon as it is acknowledged."""


class Office:
    """What stands behind one service that only accepts."""

    def __init__(self, world: World, service: Service) -> None:
        self._world = world
        self._service = service
        self.applications: Final[list[Application]] = []
        self.messages: Final[list[Message]] = []
        self._undecided = 0
        service.accept = self._accept

    def busy(self) -> bool:
        """True if something is to be decided or acknowledged still, or its run may not have it yet."""
        brought = self._world.now_ms() - BROUGHT_MS
        return self._undecided > 0 or any(not one.heard or one.heard_ms > brought for one in self.messages)

    def find(self, marker: str) -> Application | None:
        """Read back the best of all applications with that marker, on a replica that may not know the latest yet."""
        seen_until = self._world.now_ms() - round(
            self._world.draws.of("lag", marker).random() * self._service.able.lag_ms
        )
        found = [one for one in self.applications if one.request.marker == marker and one.since_ms <= seen_until]
        return max(found, key=lambda one: _RANK[one.status], default=None)

    # --- deciding --------------------------------------------------------------------------------------------

    def _accept(self, request: Request) -> Reply:
        """Take an application in, and answer with its number."""
        world, able = self._world, self._service.able
        fault = world.nemesis.of_call(f"{able.name} case")
        kind, ms = (fault.kind, fault.ms) if fault else ("", 0)
        number = f"{able.name}-{len(self.applications) + 1}"
        taken = self._given_out() if kind == "number_again" else ""
        key = request.key if able.accepts == "under our key" else taken or number
        application = Application(taken or number, key, request, world.now_ms(), announced=not taken)
        self.applications.append(application)
        self._undecided += 1
        self._service.flying(request, 1)  # its effect may still come
        chance = world.draws.of("decides", request.operation, request.attempt)
        delay = 0 if kind == "at_once" else round(50 * (LONGEST_MS / 50) ** chance.random())
        if kind == "slowly":
            delay = OVERDUE_MS + ms
        world.later(delay, lambda: self._decide(application, declines=kind == "declined"))
        return Reply(202, application.number)

    def _given_out(self) -> str:
        """A number under which a run waits already, if there is one."""
        waiting = (one.number for one in self.applications if self._world.checker.answers.waits_under(one.key))
        return next(waiting, "") if self._service.able.accepts == "under its number" else ""

    def _decide(self, application: Application, *, declines: bool) -> None:
        self._undecided -= 1
        self._service.flying(application.request, -1)
        if declines:
            application.status = "failed"
            self._world.tell(None, f"{self._service.able.name} declines {application.request.operation}")
        else:
            application.value = self._service.do(application.request).body
            application.status = "succeeded"
        if application.announced:
            self._announce(application)

    # --- announcing ------------------------------------------------------------------------------------------

    def _announce(self, application: Application) -> None:
        fault = self._world.nemesis.of_call(f"{self._service.able.name} hook")
        kind, ms = (fault.kind, fault.ms) if fault else ("", 0)
        key, number = application.key, application.number
        first = Message(application, key, f"{number}/1", "pending")
        recalled = self._world.nemesis.of_call(f"{self._service.able.name} recall")
        last = Message(application, key, f"{number}/2", application.status, application.value)
        match kind:
            case "never":
                return
            case "overdue":
                self._send(last, OVERDUE_MS + ms)
            case "twice":
                self._send(last, 0)
                self._deliver(last, 0, once=True)
            case "shuffled":
                self._send(last, 0)
                self._send(first, 1 + ms // 10)
            case "restated":
                self._send(first, 0)
                self._send(last, 0)
                self._send(Message(application, key, f"{number}/3", last.status, last.value), ms // 10)
            case "stray":
                self._send(Message(application, f"nobody {key}", f"{number}/4", last.status, last.value), 0)
                self._send(last, ms // 10)
            case "other_words":
                self._send(last, 0)
                self._world.later(1_000, lambda: self._contradict(last))
            case _:
                self._send(last, 0)
        if recalled is not None and recalled.kind == "recalled_at_once":
            last.then = lambda: self._recall(last, 0)
        elif recalled is not None:
            self._world.later(recalled.ms, lambda: self._recall(last, recalled.ms))

    def _recall(self, message: Message, ms: int) -> None:
        """Take a success back that was acknowledged: it bounced, under an id of its own."""
        if message.status != "succeeded":
            return
        if not message.heard:
            self._world.later(10_000, lambda: self._recall(message, ms))
            return
        recall = Message(message.application, message.key, f"{message.application.number}/5", "failed")
        message.application.recalled = recall
        self._send(recall, 0)

    def _contradict(self, message: Message) -> None:
        """A message with another text under an id that was received before has to be refused."""
        if message.lost:
            return  # a restored journal does not know what was received under that id
        if not message.heard:
            self._world.later(10_000, lambda: self._contradict(message))
            return
        opposite: Word = "failed" if message.status == "succeeded" else "succeeded"
        self._send(Message(message.application, message.key, message.id, opposite, "forged"), 0)

    def _send(self, message: Message, after_ms: int) -> None:
        self.messages.append(message)
        self._world.later(after_ms, lambda: self._deliver(message, 0))

    def _deliver(self, message: Message, tries: int, *, once: bool = False) -> None:
        """To any process that is awake; again after a while, until one has acknowledged it."""
        world = self._world
        if message.heard or world.closing:
            return
        awake = [life for life in world.lives.values() if life.app is not None and life.actor.alive]
        if awake:
            life = world.draws.of("webhook", message.key).choice(awake)
            world.loop.inside(life.actor, life.take_in(message))
        if not once:
            pause = PAUSES_MS[min(tries, len(PAUSES_MS) - 1)]
            world.later(pause, lambda: self._deliver(message, tries + 1))
