"""Questions and hand-overs: what people answer, and the check that each is asked, answered and heard once, as it was.

As the checker, it reads what people said, the durable records, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.control.service import ControlService
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.questions import Answered, Scalar
from beforehand.people.answering import answer
from beforehand.people.answers import ReplyAnswer, TakeOver
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.agents.people import SPECIALISTS, asked_by, handed_to
from simulator.people.approvers import NAMES, SOON_MS, Errand
from simulator.plan import Fault
from simulator.services.service import Effect

if TYPE_CHECKING:
    from simulator.world import World

LIVE: Final = 9
HEARD: Final = 12
ONCE: Final = 16


class _Word(msgspec.Struct):
    """What one person says: a `value`, or that they take it over. `tries` is how often it was said."""

    by: str
    value: Scalar = ""
    over: bool = False
    fits: bool = True
    tries: int = 0
    taken: bool = False


class _Question(msgspec.Struct):
    """One question, and what was said to it."""

    run: str
    step: str
    asked: r.QuestionAsked
    words: list[_Word] = []
    answered: Answered | None = None
    """What is on record."""


class Questions:
    """Every question and every hand-over of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._known: dict[str, _Question] = {}
        self._said: dict[str, list[_Word]] = {}
        """Every word, by question, whatever else is forgotten."""
        self._errands: list[Errand] = []
        self._over: dict[str, str] = {}
        """Who took a run over, as its records say."""
        self._handed: dict[str, str] = {}
        """Which agent goes on below a step."""

    def busy(self) -> bool:
        """True if a person still has an answer to give."""
        return any(not one.over for one in self._errands)

    def restored(self) -> None:
        """The records say less than they did: questions that are open are asked anew."""
        for part in (self._known, self._over, self._handed):
            part.clear()
        for errand in self._errands:
            errand.over = True
        for word in (word for words in self._said.values() for word in words):
            word.taken = False

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.QuestionAsked(step=step):
                self._asked(run, step, record)
            case r.EventReceived(event="answer", step=step):
                self._answered(self._known[operation_id(run, step)], msgspec.json.decode(record.payload, type=Answered))
            case r.CommandApplied(command="take_over", refused=""):
                self._taken_over(run, record.by)
            case r.HandedOff(step=step):
                self._handed_off(operation_id(run, step), record)
            case r.AttemptStarted(step=step, intent=intent):
                self._started(run, step, intent)
            case _:
                return

    def _asked(self, run: str, step: str, record: r.QuestionAsked) -> None:
        name = operation_id(run, step)
        if name in self._known:
            self._broken(ONCE, f"{name} was asked twice")
        wanted = asked_by(self._world.plan, run, record.question.text)
        if wanted is None or (wanted.default, wanted.ms) != (record.default, record.until - record.at):
            self._broken(ONCE, f"{name} is on record as {record}, and code asked for {wanted}")
        self._known[name] = _Question(run, step, record, self._said.setdefault(name, []))
        self._reached("handed over" if record.handoff is not None else "asked")
        self._somebody_answers(self._known[name])

    def _answered(self, known: _Question, given: Answered) -> None:
        """An answer is on record: a person gave it, or the time is over, and it is the first."""
        name, asked = operation_id(known.run, known.step), known.asked
        if known.answered is not None:
            self._broken(ONCE, f"{name} was answered twice")
        known.answered = given
        if not given.by:
            back = sum(min(0, one.ms) for one in self._world.nemesis.struck if one.kind == "clock_jump")
            if given.value != asked.default or given.late is not (asked.default is None):
                self._broken(ONCE, f"{name} ends with {given.value!r}, and {asked.default!r} was to stand in")
            if self._wall_ms() - back < asked.until:  # as late as it ever was
                self._broken(ONCE, f"{name} was to be answered until {asked.until}, and ends at {self._wall_ms()}")
        elif not any(_is(one, given) for one in known.words):
            self._broken(ONCE, f"{given.by} is on record with {given.value!r} for {name}, and never said so")
        for one in known.words:
            if one.taken and not _is(one, given):
                self._broken(ONCE, f"{one.by} answered {name} first, and {given.by or 'the deadline'} is on record")
        self._reached("answered" if given.by else "expired" if given.late else "by default")

    def _taken_over(self, run: str, by: str) -> None:
        items = [one for one in self._known.values() if one.run == run and one.asked.handoff is not None]
        if not any(word.over and word.by == by for one in items for word in one.words):
            self._broken(ONCE, f"{by} is on record as having taken run {run} over, and never said so")
        self._over[run] = by
        self._reached("taken over")

    def _handed_off(self, name: str, record: r.HandedOff) -> None:
        if name in self._handed:
            self._broken(ONCE, f"{name} was handed over twice")
        self._handed[name] = record.agent
        self._reached("handed to an agent")

    def _started(self, run: str, step: str, intent: r.Intent | None) -> None:
        """An attempt is on record: no person has taken the run over, and the agent that goes on in it may do that."""
        serves = self._world.checker.operations[operation_id(run, step)].intent
        if run in self._over and not (serves is not None and serves.serves):
            self._broken(LIVE, f"{run}/{step} begins, and {self._over[run]} had taken run {run} over")
        for place, agent in self._handed.items():
            below = operation_id(run, step).startswith(f"{place}/")
            if below and intent is not None and intent.tool not in SPECIALISTS:
                self._broken(LIVE, f"{run}/{step} calls {intent.tool}, which {agent} was not given")

    def happened(self, effect: Effect) -> None:
        """A service did something: what a run has handed over is done once, by whomever."""
        if handed_to(self._world.plan, effect.thing):
            done = [one for one in self._world.services[effect.service].effects if one.thing == effect.thing]
            if len(done) > 1 and not any(self._world.checker.operations[one.operation].retries for one in done):
                self._broken(2, f"{effect.thing} was handed over, and done {len(done)} times: {done}")

    def told(self, actor: Actor, run: str, text: str, value: Scalar | None) -> None:
        """Agent code heard an answer, or that none came: it is the one on record."""
        self._world.tell(actor, f"run {run} receives {value!r} for {text}")
        if not actor.alive:
            return
        known = next((one for one in self._known.values() if one.run == run and one.asked.question.text == text), None)
        if known is None or known.answered is None:
            self._broken(HEARD, f"run {run} heard {value!r} about {text}, and no answer is on record")
        elif known.answered.value != value or known.answered.over:
            self._broken(HEARD, f"run {run} heard {value!r} about {text}, and {known.answered} is on record")

    # --- people ----------------------------------------------------------------------------------------------

    def _somebody_answers(self, known: _Question) -> None:
        """Who answers, and how, is a matter of chance and of the plan."""
        world, asked = self._world, known.asked
        fault = world.nemesis.of_call("question") or Fault("", 0)
        chance = world.draws.of("questions", known.run, known.step)
        names = chance.sample(NAMES, 2)
        first, second = (_Word(name, _value(known, chance)) for name in names)
        soon = round(chance.random() * SOON_MS)
        match fault.kind:
            case "silent":
                return
            case "overslept":
                self._say(known, first, asked.until - asked.at + fault.ms // 10)
            case "disagree":
                self._say(known, first, soon)
                self._say(known, second, soon + fault.ms % 50)
            case "misfit":
                first.value, first.fits = "what?", False
                self._say(known, first, soon)
                self._say(known, second, soon + fault.ms)
            case "take_over" | "both" if asked.handoff is not None:
                first.over = True
                self._say(known, first, soon)
                if fault.kind == "both":
                    self._say(known, second, soon + fault.ms % 50)
            case _:
                self._say(known, first, soon)

    def _say(self, known: _Question, word: _Word, after_ms: int) -> None:
        name = operation_id(known.run, known.step)
        known.words.append(word)
        says = "take it over" if word.over else f"say {word.value!r}"
        give, told = functools.partial(_give, name, word), functools.partial(self._told, known, word)
        errand = Errand(self._world, f"{word.by} {says} to {name}", give, told)
        errand.begin(after_ms)
        self._errands.append(errand)

    def _told(self, known: _Question, word: _Word, _actor: Actor, refused: bool) -> None:
        """An answer that was accepted was the first one. A lone, valid answer in time is accepted."""
        name = operation_id(known.run, known.step)
        word.taken = not refused
        self._reached("a word refused" if refused else "a word taken down")
        if word.taken and not word.fits:
            self._broken(ONCE, f"{word.value!r} was taken for an answer to {name}")
        if word.taken and any(one.taken and one is not word for one in known.words):
            self._broken(ONCE, f"{name} was answered by {word.by} after another person had")
        if word.taken and known.answered is not None and not _is(word, known.answered):
            self._broken(
                ONCE, f"{word.by} was told to be the first to answer {name}, and {known.answered} is on record"
            )
        alone = word.tries == 1 and not any(one.tries for one in known.words if one is not word)
        in_time = known.answered is None and self._wall_ms() < known.asked.until
        if refused and alone and word.fits and in_time and self._waits(known):
            self._broken(ONCE, f"{word.by} answered {name} first, in time and to the point, and was refused")

    # --- at the end of time ------------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """What was taken down was heard, or its run had come to its end; who took one over has it."""
        rows = await self._world.journal.runs(limit=10_000)
        set_aside = {row.run for row in rows if row.reason.startswith("quarantined")}
        for row in rows:
            if (row.run in self._over) is not (row.status == "stopped" and row.reason.startswith("handed_over")):
                self._broken(
                    ONCE, f"run {row.run} is {row.status} {row.reason}, taken over by {self._over.get(row.run)}"
                )
        for name, known in self._known.items():
            taken = [one for one in known.words if one.taken]
            if taken and known.answered is None and self._waits(known) and known.run not in set_aside:
                self._broken(ONCE, f"{taken[0].by} answered {name}, and that is not on record")

    def _waits(self, known: _Question) -> bool:
        """True if code receives nothing else instead: no message, and nothing from a person who took the run over."""
        gone = self._world.checker.messages.interrupted(known.run) or known.run in self._over
        return not gone and self._world.restored_ms < 0

    def _wall_ms(self) -> int:
        return EPOCH_MS + self._world.now_ms() + self._world.skew_ms

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"question: {what}"] += 1


def _value(known: _Question, chance: random.Random) -> Scalar:
    choices = known.asked.question.choices
    return chance.choice(choices) if choices else chance.randrange(1_000)


async def _give(name: str, word: _Word, service: ControlService) -> None:
    word.tries += 1
    await answer(service, name, TakeOver("I do it") if word.over else ReplyAnswer(word.value), by=word.by)


def _is(word: _Word, given: Answered) -> bool:
    """Whether this is what stands on record."""
    return word.by == given.by and word.over == given.over and (word.over or word.value == given.value)
