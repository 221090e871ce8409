"""The knowledge of a run: facts that are known or inferred, and what relies on them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from beforehand.model.errors import UsageError
from beforehand.model.plan import Plan
from beforehand.model.transaction import encloses


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact. `confidence` is from 0 to 1; `at_ms` is the wall clock at which it was learned.

    `source` is the origin of the fact. If a tool reported it, `source` is the tool and `operation` its operation.
    """

    name: str
    value: Any
    source: str
    at_ms: int
    confidence: float = 1.0
    inferred_from: tuple[str, ...] = ()
    inferred: bool = False
    operation: str = ""


class Guess(msgspec.Struct, frozen=True):
    """A possible inference: its value, its confidence, and the facts from which it follows."""

    value: Any
    confidence: float
    source: str
    inferred_from: tuple[str, ...] = ()


class Stakes(msgspec.Struct, frozen=True):
    """The costs of a question and of acting on a wrong guess, in one unit of your choice.

    `within` is the time limit for an answer. After it the guess is used, if there is one.
    """

    asking: float = 1.0
    error: float = 10.0
    within: timedelta | None = None


class Weighed(msgspec.Struct, frozen=True):
    """Why a fact was asked for or inferred: `inferring` is the chance of being wrong times what that costs."""

    fact: str
    chosen: Literal["ask", "infer"]
    asking: float
    inferring: float | None
    confidence: float | None = None


class Correction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effect of a new value on the facts and steps that relied on the old one.

    `invalidated` facts were inferred from the old value, directly or not. `dropped` steps had not been executed.
    `executed` steps had been executed, and have to be compensated or reviewed. `underway` steps had begun: nothing more
    is sent for them, and the end of their plan shows if they were executed.
    """

    fact: str
    invalidated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    executed: tuple[str, ...] = ()
    underway: tuple[str, ...] = ()


def weigh(fact: str, guess: Guess | None, stakes: Stakes) -> Weighed:
    """The cheaper of asking and inferring, by expected cost. At equal cost a person is asked."""
    if guess is None:
        return Weighed(fact, "ask", stakes.asking, None)
    if not 0 <= guess.confidence <= 1:
        raise UsageError(f"the confidence of {fact} is {guess.confidence}", next_step="give a number from 0 to 1")
    inferring = (1 - guess.confidence) * stakes.error
    return Weighed(fact, "infer" if inferring < stakes.asking else "ask", stakes.asking, inferring, guess.confidence)


class Known:
    """The facts of one run and what relied on them: a fold of what was learned, in order."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.reliance: dict[str, frozenset[str]] = {}
        self.executed: set[str] = set()
        self.corrections: list[Correction] = []
        self.underway: set[str] = set()
        self.planned: dict[str, str] = {}
        """The steps of plans that are being executed now, begun or not, with their plan."""
        self.shaken: dict[str, frozenset[str]] = {}
        """The corrected facts that some of these steps relied on."""

    def values(self) -> dict[str, Any]:
        """Every fact's value by name."""
        return {name: fact.value for name, fact in self.facts.items()}

    def learn(self, fact: Fact, by: str = "") -> Correction | None:
        """Take a fact. A value other than the one before is a correction, and invalidates what relied on that.

        `by` is the step of the tool that reported it, if one did: what a plan itself changed corrects no step of it.
        """
        before = self.facts.get(fact.name)
        self.facts[fact.name] = fact
        if before is None or before.value == fact.value:
            return None
        gone = self.inferred_from(fact.name)
        for name in gone:
            del self.facts[name]
        wrong = {fact.name, *gone}
        leaning = {step: names & wrong for step, names in self.reliance.items() if names & wrong}
        leaning = {step: names for step, names in leaning.items() if not (by and self._same_plan(step, by))}
        for step, names in leaning.items():
            del self.reliance[step]
            if step in self.planned:
                self.shaken[step] = self.shaken.get(step, frozenset()) | names
        executed = tuple(step for step in leaning if step in self.executed)
        underway = tuple(step for step in leaning if step in self.underway)
        dropped = tuple(step for step in leaning if step not in self.executed | self.underway)
        return Correction(fact.name, gone, dropped, executed, underway)

    def resting_on(self, name: str, value: Any) -> set[str]:
        """The steps of plans under way that rely on another value of this fact, or on what was inferred from it."""
        before = self.facts.get(name)
        if before is None or before.value == value:
            return set()
        wrong = {name, *self.inferred_from(name)}
        return {step for step in self.planned if self.reliance.get(step, frozenset()) & wrong}

    def _same_plan(self, step: str, operation: str) -> bool:
        return step in self.planned and encloses(self.planned[step], operation)

    def inferred_from(self, name: str) -> tuple[str, ...]:
        """Every fact that was inferred from this one, directly or through others; not the fact itself."""
        found: list[str] = [name]
        for one in found:
            found.extend(
                other for other, fact in self.facts.items() if one in fact.inferred_from and other not in found
            )
        return tuple(found[1:])

    def older_than(self, at_ms: int, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these facts that are missing, or were learned before `at_ms`."""
        return tuple(name for name in names if (fact := self.facts.get(name)) is None or fact.at_ms < at_ms)

    def rely(self, step: str, names: Iterable[str]) -> None:
        """Note that a step, of a plan or of code, is decided on these facts. Raises `UsageError` for a missing one."""
        wanted = frozenset(names)
        if missing := sorted(wanted - self.facts.keys()):
            raise UsageError(f"{step} relies on what is not known: {', '.join(missing)}")
        self.reliance[step] = self.reliance.get(step, frozenset()) | wanted

    # --- the steps of a plan that is being executed ---------------------------------------------------------------

    def plan(self, step: str, names: Iterable[str], given: Mapping[str, Any]) -> None:
        """A plan with this step begins, and the step relies on these facts as they were `given`."""
        self.planned[step] = step.rpartition("/")[0]
        wanted, now = frozenset(names), self.values()
        wrong = frozenset(name for name in wanted if name not in now or now[name] != given[name])
        if wrong:
            self.shaken[step] = wrong
        self.rely(step, wanted - wrong)

    def begin(self, step: str) -> None:
        """A call of this step is begun: something may be sent."""
        self.underway.add(step)

    def end(self, step: str, *, effect: bool) -> None:
        """The calls of this step are over. `effect`: one of them changed something, or may have."""
        self.underway.discard(step)
        if effect:
            self.executed.add(step)

    def over(self, steps: Iterable[str]) -> None:
        """Their plan is over: what was not executed never will be, and relies on nothing any more."""
        for step in steps:
            self.planned.pop(step, None)
            self.underway.discard(step)
            self.shaken.pop(step, None)
            if step not in self.executed:
                self.reliance.pop(step, None)

    def undone(self, transaction: str, still_standing: Iterable[str]) -> None:
        """A transaction was called off: of the executed steps in it, only what was not undone counts."""
        inside = {step for step in self.executed if encloses(transaction, step)}
        standing = {step for step in inside if any(one == step or encloses(step, one) for one in still_standing)}
        for step in inside - standing:
            self.executed.discard(step)
            self.reliance.pop(step, None)


def without(plan: Plan, dropped: Iterable[str]) -> Plan:
    """The plan without these steps (by id, or as a correction names them) and without the steps that wait for them."""
    gone = {name.rpartition("/")[2] for name in dropped}
    kept = tuple(step for step in plan.steps if step.id not in gone and not plan.before(step) & gone)
    return msgspec.structs.replace(plan, steps=kept)
