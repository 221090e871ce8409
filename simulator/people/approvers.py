"""People who approve: they see what is to be approved, take their time, and answer in time or not.

Each answer is an errand: its giver brings it to any process that is awake, until one has stored it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from beforehand.control.service import ControlService
from beforehand.errors import BeforehandError, UsageError
from beforehand.model import records as r
from beforehand.people.answering import answer
from beforehand.people.answers import Answer, Approve, Decline, Edit, StandIn
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.agents.people import GATED, PETTY
from simulator.plan import Fault

if TYPE_CHECKING:
    from simulator.world import World


AGAIN_MS: Final = 15_000
"""After that time, a person whose answer was not acknowledged gives it again."""


class Errand:
    """One thing to be said. It is over once it was taken down, or refused with a reason.

    `deed` says it, and `told` hears by whom it was taken down, and whether it was refused.
    """

    def __init__(
        self,
        world: World,
        what: str,
        deed: Callable[[ControlService], Awaitable[object]],
        told: Callable[[Actor, bool], None],
        *,
        again_ms: int = AGAIN_MS,
    ) -> None:
        self.what: Final = what
        self.over = False
        self._saying: Final[list[Actor]] = []
        self._world = world
        self._deed = deed
        self._told = told
        self._again_ms = again_ms

    def begin(self, after_ms: int) -> None:
        """Set out after a while."""
        self._world.later(after_ms, self._try)

    def _try(self) -> None:
        world = self._world
        if self.over or world.closing:
            return
        awake = [life for life in world.lives.values() if life.app is not None and life.actor.alive]
        if awake:
            life = world.draws.of("errand", self.what).choice(awake)
            world.loop.inside(life.actor, life.hear_out(self))
        world.later(self._again_ms, self._try)

    async def run(self, actor: Actor, service: ControlService) -> None:
        """Say it, inside a process."""
        if self.over or actor in self._saying:  # a process that was stopped has got it several times
            return
        self._saying.append(actor)
        self._world.tell(actor, f"learns {self.what}")
        try:
            await self._deed(service)
        except UsageError:
            self._end(actor, refused=True)
        except BeforehandError as error:
            self._world.tell(actor, f"cannot take down {self.what}: {error.message}")
        else:
            self._end(actor, refused=False)
        finally:
            self._saying.remove(actor)

    def _end(self, actor: Actor, *, refused: bool) -> None:
        self._world.tell(actor, f"{'refuses' if refused else 'takes down'} {self.what}")
        self.over = True
        self._told(actor, refused)


# --- people -----------------------------------------------------------------------------------------------------------


NAMES: Final = ("bea", "carl", "dora")
ASIDE: Final = ("gus", "hal")
"""They tell no run anything, so one of them may approve what those above proposed."""
SOON_MS: Final = 40_000
"""Within that time a person answers who is not held up."""

LONG_MS: Final = 24 * 3_600_000
HARDLY_MS: Final = 60_000
"""So much earlier than it says an approval ends: one that lasts a little longer can be used for seconds only."""


class Word(msgspec.Struct):
    """What one person says about one operation.

    A yes is to what that person was `shown`, under the digest `asks`; an edit proposes `changes`; who stands in gives
    the `result` itself.
    """

    operation: str
    by: str
    shown: Mapping[str, str]
    asks: str
    says: Literal["yes", "no", "edit", "stand_in"] = "yes"
    changes: Mapping[str, Any] = {}
    result: Any = ""
    lasts_ms: int = LONG_MS
    said_ms: int = 0
    """When it was said first, by the wall clock; 0 before."""

    def stands_for(self, arguments: Mapping[str, str]) -> bool:
        """Whether this is a yes to a call with these arguments, or proposes them."""
        changes = {name: str(value) for name, value in self.changes.items()}
        return self.says in {"yes", "edit"} and {**self.shown, **changes} == arguments


def answer_of(word: Word) -> Answer:
    """What that person says, as every face of the product says it."""
    hours = word.lasts_ms / 3_600_000
    match word.says:
        case "yes":
            return Approve(hours=hours)
        case "edit":
            return Edit(dict(word.changes))
        case "stand_in":
            return StandIn(word.result)
        case "no":
            return Decline("I say so")


class People:
    """Everybody who may approve something."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._errands: list[Errand] = []
        self.said: Final[list[Word]] = []
        """Every word that was said, whether anybody took it down or not."""

    def busy(self) -> bool:
        """True if a person still has an answer to give."""
        return any(not one.over for one in self._errands)

    def restored(self) -> None:
        """What was shown to them is not what is asked any more: they look anew."""
        for errand in self._errands:
            errand.over = True

    def asked_again(
        self, operation: str, shown: Mapping[str, str], question: r.OperationParked, editors: Sequence[str]
    ) -> None:
        """A question about edited arguments is on record: its last editor tries to approve it, and others answer."""
        soon = round(self._world.draws.of("approvers", operation).random() * SOON_MS)
        self._say(soon // 2, Word(operation, editors[-1], shown, question.asks))
        others = [name for name in NAMES if name not in editors]
        says: Literal["yes", "no"] = "yes" if len(others) >= question.people else "no"
        self._say(
            soon, *(Word(operation, name, shown, question.asks, says) for name in (others or NAMES)[: question.people])
        )

    def asked(self, operation: str, tool: str, shown: Mapping[str, str], question: r.OperationParked) -> None:
        """A question is on record. Who answers it, and how, is a matter of chance and of the plan."""
        world = self._world
        fault = world.nemesis.of_call("people") or Fault("", 0)
        names = list(NAMES)
        chance = world.draws.of("approvers", operation)
        chance.shuffle(names)
        first, second, third = (Word(operation, name, shown, question.asks) for name in names)
        voices = (first, second)[: question.people]
        soon, ms = round(chance.random() * SOON_MS), fault.ms
        match fault.kind:
            case "no":
                first.says = "yes" if question.people > 1 else "no"
                second.says = "no"
                self._say(soon, *(first, second)[: question.people])
            case "both":
                second.says = "no"
                self._say(soon, first)
                self._say(soon, second)
                self._say(soon + ms, third)
            case "double_click":
                self._say(soon, first)
                self._say(soon, msgspec.structs.replace(first))
                self._say(soon + ms, *voices[1:])
            case "overslept":
                in_time = question.until - question.at if question.until else 0
                self._say(in_time + ms // 10, *voices)
            case "brief":
                first.lasts_ms = HARDLY_MS + ms // 10
                self._say(soon, first)
                self._say(soon + 2 * ms + HARDLY_MS, *voices[1:])
            case "meanwhile" if tool in GATED:
                world.later(soon // 2, lambda: world.services[tool].by_somebody(shown["thing"], f"somebody's {ms}"))
                self._say(soon, *voices)
            case "edit":
                first.says, first.changes = "edit", edited(shown, ms)
                self._say(soon, first)
                self._say(soon + ms % 1000, *voices[1:])
            case "stand_in":
                first.says, first.result = "stand_in", f"done by {first.by}"
                self._say(soon, first)
            case "misfit":
                first.says, first.changes = "edit", {"thing": ms}
                second.says, second.result = "stand_in", ms
                self._say(soon, first, second)
            case _:
                self._say(soon, *voices)

    def _say(self, after_ms: int, *words: Word) -> None:
        """One after the other, a moment apart."""
        for number, word in enumerate(words):
            what = f"{word.by} say {word.says} to {word.operation}"
            errand = Errand(self._world, what, functools.partial(self._give, word), functools.partial(self._told, word))
            errand.begin(after_ms + number * (1 + after_ms // 4))
            self._errands.append(errand)

    async def _give(self, word: Word, service: ControlService) -> None:
        if not word.said_ms:
            word.said_ms = EPOCH_MS + self._world.now_ms() + self._world.skew_ms
            self.said.append(word)
        await answer(service, word.operation, answer_of(word), by=word.by, shown=word.asks)

    def _told(self, word: Word, _actor: Actor, refused: bool) -> None:
        """Who would have had it otherwise and cannot is content with it as it is."""
        self._world.checker.approvals.acknowledged(word, refused=refused)
        if refused and word.says in {"edit", "stand_in"}:
            self._say(SOON_MS // 4, Word(word.operation, word.by, word.shown, word.asks))
        elif refused and word.says == "yes" and word.by not in ASIDE:
            by = ASIDE[NAMES.index(word.by) % len(ASIDE)]
            self._say(SOON_MS // 4, Word(word.operation, by, word.shown, word.asks))


def edited(shown: Mapping[str, str], ms: int) -> Mapping[str, Any]:
    """What a person would rather send: less money, perhaps so little that it is not asked about; or something else."""
    if "cents" not in shown:
        return {"thing": f"{shown['thing']} indeed"}
    return {"cents": PETTY // 2 if ms % 3 == 0 else int(shown["cents"]) - 1 - ms % 99}
