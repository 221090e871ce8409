"""People: they are shown what is to be approved, take their time, and say yes or no, once or twice, in time or not.

Each says what it has to say to any process that is awake, and says it again until somebody has taken it down.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.model import records as r
from holdfast.testing.clock import EPOCH_MS
from holdfast.testing.simulator.plan import Fault

if TYPE_CHECKING:
    from holdfast.testing.simulator.world import World

NAMES: Final = ("bea", "carl", "dora")
SOON_MS: Final = 40_000
"""Within that time a person answers who is not held up."""

AGAIN_MS: Final = 15_000
"""After that time a person says it again who has not been heard."""

LONG_MS: Final = 24 * 3_600_000
HARDLY_MS: Final = 60_000
"""So much earlier than it says an approval ends: one that lasts a little longer can be used for seconds only."""


class Word(msgspec.Struct):
    """What one person says about one operation. `heard`: it was taken down, or refused and the person told why."""

    operation: str
    by: str
    yes: bool = True
    lasts_ms: int = LONG_MS
    said_ms: int = 0
    """When it was said first, by the wall clock; 0 before."""
    heard: bool = False
    refused: bool = False


class People:
    """Everybody who may approve something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[Word] = []
        self.said: Final[list[Word]] = []
        """Every word that was said, whether anybody took it down or not."""

    def busy(self) -> bool:
        """Whether somebody has something to say still."""
        return bool(self._open)

    def restored(self) -> None:
        """What was shown to them is not what is asked any more: they look anew."""
        self._open.clear()

    def asked(self, operation: str, tool: str, thing: str, question: r.OperationParked) -> None:
        """A question is on record. Who answers it, and how, is a matter of chance and of the plan."""
        world = self._world
        fault = world.nemesis.of_call("people") or Fault("", 0)
        names = list(NAMES)
        world.chance.shuffle(names)
        first, second, third = (Word(operation, name) for name in names)
        voices = (first, second)[: question.people]
        soon, ms = round(world.chance.random() * SOON_MS), fault.ms
        match fault.kind:
            case "no":
                first.yes = question.people > 1
                second.yes = False
                self._say(soon, *(first, second)[: question.people])
            case "both":
                second.yes = False
                self._say(soon, first)
                self._say(soon, second)
                self._say(soon + ms, third)
            case "double_click":
                self._say(soon, first)
                self._say(soon, Word(operation, first.by))
                self._say(soon + ms, *voices[1:])
            case "overslept":
                in_time = question.until - question.at if question.until else 0
                self._say(in_time + ms // 10, *voices)
            case "brief":
                first.lasts_ms = HARDLY_MS + ms // 10
                self._say(soon, first)
                self._say(soon + 2 * ms + HARDLY_MS, *voices[1:])
            case "meanwhile":
                world.later(soon // 2, lambda: world.services[tool].by_somebody(thing, f"somebody's {ms}"))
                self._say(soon, *voices)
            case _:
                self._say(soon, *voices)

    def _say(self, after_ms: int, *words: Word) -> None:
        """One after the other, a moment apart."""
        for number, word in enumerate(words):
            self._open.append(word)
            self._world.later(after_ms + number * (1 + after_ms // 4), functools.partial(self._deliver, word))

    def _deliver(self, word: Word) -> None:
        world = self._world
        if word.heard or world.closing or not any(one is word for one in self._open):
            return
        awake = [life for life in world.lives.values() if life.app is not None and life.actor.alive]
        if awake:
            life = world.chance.choice(awake)
            if not word.said_ms:
                word.said_ms = EPOCH_MS + world.now_ms() + world.skew_ms
                self.said.append(word)
            world.loop.inside(life.actor, life.take_word(word))
        world.later(AGAIN_MS, lambda: self._deliver(word))

    def heard(self, word: Word) -> None:
        """Somebody took it down, or said why not."""
        word.heard = True
        self._open = [one for one in self._open if one is not word]
