"""The budget of a run: its limits, what was used, and what is reserved by calls that have not ended. Pure.

Folded from the records alone (`RunHistory.budget`). A model call reserves before it is sent and is settled by the
usage on record. What a lost call used is not known, so its reservation counts as used; only a request that was refused
used nothing. An effect counts from its first attempt, or from the moment when it is held for a commit, until it is
proven that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from holdfast.model import records as r
from holdfast.model.usage import Usage
from holdfast.policies import MOST, BudgetLimit, RunBudget

if TYPE_CHECKING:
    from holdfast.model.operation import OperationState

_OF_MODELS: Final[tuple[BudgetLimit, ...]] = ("tokens", "model_calls")
OF_EFFECTS: Final[tuple[BudgetLimit, ...]] = ("effects",)
_BYTES_OF_TOKEN: Final = 4
"""How many bytes of a question count as one token before any call of the run has stated its usage."""


class BudgetLeft(msgspec.Struct, frozen=True):
    """The part of a limit that remains, from 0 to 1, and the limit in words, such as `tokens of the run`."""

    share: float
    words: str


class BudgetState(msgspec.Struct, eq=False):
    """The limits of a run, and what it used of them. `open` are the tokens that calls in flight reserve, by step.

    `unknown` counts the calls that ended without a statement of their usage: their reservations count as used.
    """

    limits: RunBudget
    tokens: int = 0
    model_calls: int = 0
    effects: int = 0
    unknown: int = 0
    largest: int = 0
    open: dict[str, int] = {}

    @property
    def limits_models(self) -> bool:
        """True if a limit is about calls of models, which then are durable before they are sent."""
        return any(getattr(self.limits, name) is not None for name in _OF_MODELS)

    def used(self, limit: BudgetLimit) -> int:
        """How much of a limit was used."""
        return {"tokens": self.tokens, "model_calls": self.model_calls, "effects": self.effects}[limit]

    def reserved(self, limit: BudgetLimit) -> int:
        """How much of a limit the model calls in flight reserve."""
        return {"tokens": sum(self.open.values()), "model_calls": len(self.open), "effects": 0}[limit]

    def spent(self, limits: tuple[BudgetLimit, ...], without: int = 0) -> str:
        """The limits of these that are reached, in words; empty if none is. `without` is not counted."""
        found: list[str] = []
        for name in limits:
            most: int | None = getattr(self.limits, name)
            used, reserved = self.used(name) - without, self.reserved(name)
            if most is not None and used + reserved >= most:
                reserves = f", {reserved:,} reserved" if reserved else ""
                found.append(f"the limit of {words_of(name)} is reached: {used:,} of {most:,} used{reserves}")
        return "; ".join(found)

    def left(self, without: str) -> Iterator[BudgetLeft]:
        """The part that remains of each limit of model calls. What the call of the step `without` reserves is left."""
        others = replace(self, open={step: tokens for step, tokens in self.open.items() if step != without})
        for name in _OF_MODELS:
            most: int | None = getattr(self.limits, name)
            if most is not None:
                yield BudgetLeft(
                    part_left(most, others.used(name) + others.reserved(name)), f"{words_of(name)} of the run"
                )

    def _raise(self, added: r.BudgetRaised) -> None:
        more = {"tokens": added.tokens, "model_calls": added.model_calls, "effects": added.effects}
        limits = {name: getattr(self.limits, name) for name in more}
        raised = {name: min(MOST, most + more[name]) for name, most in limits.items() if most is not None}
        self.limits = replace(self.limits, **raised)

    def refusal(self, step: str, before: Usage) -> str:
        """The limits that permit no call of a model, in words. `before` is the usage of the step's earlier call."""
        trial = replace(self, open=dict(self.open))
        trial.settle(step, before)
        return trial.spent(_OF_MODELS)

    def take(self, record: r.Record) -> None:
        """Take one record of the run. Operations are taken by `change`."""
        match record:
            case r.DecisionStarted():
                self.settle(record.step, record.before)  # an earlier call of the same step has ended
                self.open[record.step] = record.reserved
            case r.DecisionRecorded() | r.ReservationSettled():
                self.settle(record.step, record.usage)
            case r.Claimed():
                for step in list(self.open):
                    self.settle(step, Usage())  # their process is gone: what they used will never be known
            case r.BudgetRaised():
                self._raise(record)
            case _:
                pass

    def settle(self, step: str, usage: Usage) -> None:
        reserved = self.open.pop(step, None)
        if reserved is None:
            return
        calls, tokens = settled(usage, reserved)
        self.model_calls += calls
        self.tokens += tokens
        self.unknown += calls and not usage.known
        self.largest = max(self.largest, usage.input_tokens + usage.output_tokens)

    def change(self, before: OperationState | None, after: OperationState | None) -> None:
        """An operation went from one state to another."""
        self.effects += is_effect(after) - is_effect(before)


def reservation(largest: int, question: int) -> int:
    """The tokens that a call reserves: those of the largest call so far, or those of a question of so many bytes."""
    return max(largest, -(-question // _BYTES_OF_TOKEN))


def settled(usage: Usage, reserved: int) -> tuple[int, int]:
    """The calls and tokens that a call with this usage counts for, which had reserved so many tokens."""
    used = usage.input_tokens + usage.output_tokens
    if usage.refused and not used:
        return 0, 0
    return 1, used if usage.known else reserved


def is_effect(operation: OperationState | None) -> bool:
    """True if the operation counts as an effect of the run: it happened, may have happened, or is going to.

    What serves another operation never counts: a spent budget stops no compensation. Nor does an outcome that was
    taken from another operation.
    """
    if operation is None or operation.intent.serves or operation.intent.completes:
        return False
    if operation.final:
        return operation.landed and operation.may_have_been_sent
    return operation.phase == "held" or operation.released or operation.may_have_landed


def part_left(most: int, used: int) -> float:
    """The part of a limit that remains, from 0 to 1."""
    return max(0.0, 1 - used / most) if most else 0.0


def words_of(limit: str) -> str:
    """The name of a limit as people read it."""
    return limit.replace("_", " ")
