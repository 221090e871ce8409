"""Facts about an operation that its process found out and no record holds: plain data, found again after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from beforehand.model import records as r

if TYPE_CHECKING:
    from beforehand.engine.current_operation import CallReport
    from beforehand.engine.suspension import BudgetRefusal
    from beforehand.journal.port import Permit
    from beforehand.model.decision.moves import Move
    from beforehand.model.decision.situation import OtherEffect, Reading, Situation, SpentBudget
    from beforehand.model.operation import OperationState
    from beforehand.model.standing_permission import StandingPermission


ClaimState = Literal["taken", "succeeded", "released", "ended"]


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call. `over` is false if the call still runs after it was given up."""

    value: Any = None
    error: BaseException | None = None
    over: bool = True
    key_read: bool = True
    sends: int = 0  # how often the tool reported that it was about to send
    cost: float | None = None
    reported: CallReport | None = None


class ClaimNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry about an effect: which operation, with which arguments, in which state.

    `by` is the person who said that it happened, and so gave its result.
    """

    operation: str
    digest: str
    state: ClaimState
    generation: int = 0
    outside: int = 0
    result: r.Raw = r.NOTHING
    by: str = ""


class ClaimHolder(msgspec.Struct, frozen=True):
    """Holder of a business key, or last write with the same parameters. `since_ms`: wall clock of its first note."""

    note: ClaimNote
    since_ms: int

    @property
    def stands(self) -> bool:
        """True if its effect exists, or may: an operation whose outcome is unknown keeps its key."""
        return self.note.state in {"taken", "succeeded"}


class CoveringPermission(msgspec.Struct, frozen=True):
    """A standing permission that covers an operation, as this process last read it. `cost` is the cost of one use."""

    permission: StandingPermission
    cost: float
    arguments: msgspec.Raw


class Decided(msgspec.Struct, frozen=True, gc=False):
    """A question and the answer of `decide`."""

    operation: OperationState
    situation: Situation
    move: Move


class Findings(msgspec.Struct):
    """Unrecorded facts about an operation that this process found out."""

    reading: Reading = "unread"  # how the preconditions compare with those that were read first
    observed: r.Raw = r.NOTHING
    other: OtherEffect | None = None  # the effect of another operation that this one conflicts with
    holder: ClaimHolder | None = None
    taking: tuple[int, int] | None = None  # the generation of the business key that is about to be taken
    after: int | None = None  # how many writes with the same `once` parameters were known when a model chose this one
    things_taken: int | None = None  # how many attempts about the same thing were known when it was checked
    gate: bool | None = None  # True if the contract requires an approval; None: not evaluated yet
    judged: r.Raw = r.NOTHING  # the arguments for which it was evaluated
    misfit: str = ""  # why the recorded arguments cannot be given to the tool as it is now
    misfit_of: r.Raw = r.NOTHING  # the arguments that were tried
    permission: CoveringPermission | None = None  # the standing permission that covers this operation
    key_age_ms: int = 0
    waiting_since: int | None = None  # when it first looked for effects of others
    permit: Permit | None = None  # the permit of its attempt, where the tool has a limit
    decided: Decided | None = None  # the last question, if its answer needed no clock
    refusal: BudgetRefusal | None = None  # the limit of a shared budget that has refused it, until it is asked again
    spent: SpentBudget | None = None  # the same for `decide`; also a price in another currency than a budget
    held_since: int = 0  # the wall clock at which failing attempts began to hold a caller in this process
    hung: str = ""  # the process whose call was given up and may still run, in words; empty: no process is known
