"""The structs of the API: requests are checked against them, and the description is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from beforehand.inspect.reader import waits_of
from beforehand.journal.port import RunRow, RunStatus
from beforehand.model.waits import ListedWait
from beforehand.people import answers as a
from beforehand.policies import COUNTED_LIMITS, MOST, RunBudget
from beforehand.queues.limits import DEFAULT
from beforehand_console.auth.authorize import Principal, Role
from beforehand_console.reviews.shadow_reviews import ReviewWord

BULK: Final = 20
"""How many items are answered at once at most: a person cannot read more of them before one click."""
ItemName = Annotated[str, Meta(min_length=1, max_length=1000, description="RUN/STEP, as the list names it.")]
Digest = Annotated[str, Meta(min_length=1, max_length=128, description="The `digest` of the dossier that was read.")]


class AnswerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer to one item. `shown` is the digest of what was read: if that has changed, nothing is taken."""

    item: ItemName
    shown: Digest
    answer: a.Answer


class AnsweredItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One item of several, with the digest of what was read about it."""

    item: ItemName
    shown: Digest


class AnswersRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same answer to several items: all of them are taken, or none."""

    items: Annotated[tuple[AnsweredItem, ...], Meta(min_length=1, max_length=BULK)]
    answer: a.Approve | a.Decline


class AnswerReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer that is on record. `at_once`: it is applied; else the process that `note` names applies it."""

    item: str
    run: str
    at_once: bool
    note: str = ""


class AnswerReceipts(msgspec.Struct, frozen=True):
    """All answers are on record."""

    taken: list[AnswerReceipt]


class ReviewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shadow review: whether it was right to send this operation without a person."""

    operation: ItemName
    word: ReviewWord
    note: str = ""


class ReviewReceipt(msgspec.Struct, frozen=True):
    """A shadow review that is on record. A wrong effect remains until `run` is undone."""

    operation: str
    run: str


class RunSummary(msgspec.Struct, frozen=True):
    """One line of the listing. Times are wall clocks in milliseconds.

    `contradicted` names the steps whose final outcome was contradicted, while no person has answered.
    """

    run: str
    agent: str
    status: RunStatus
    reason: str
    due_ms: int | None
    created_ms: int
    updated_ms: int
    waits: list[ListedWait]
    contradicted: list[str] = []


BudgetAmount = Annotated[float, Meta(ge=0, le=MOST, multiple_of=1)]
"""A whole number: JSON may write one as 5.0."""


WrittenMoney = Annotated[
    str, Meta(max_length=60, pattern=r"^\s*\d+(\.\d+)?\s*[A-Z]{3}\s*$", description="An amount: 2.50 EUR.")
]


class SubmittedBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a run: a limit that is left out does not hold. At a limit, `then` asks a person or stops the call.

    `cost` is what its model calls may cost, with the currency, and `unpriced` what one counts without a known price.

    Without any limit it says nothing: then the budget of the agent holds.
    """

    tokens: BudgetAmount | UnsetType = UNSET
    model_calls: BudgetAmount | UnsetType = UNSET
    effects: BudgetAmount | UnsetType = UNSET
    cost: WrittenMoney | None = None
    unpriced: WrittenMoney | None = None
    then: Literal["ask", "stop"] = "ask"

    def limits(self) -> RunBudget | None:
        """The budget of the run; None without a limit."""
        given = {name: int(amount) for name in COUNTED_LIMITS if (amount := getattr(self, name)) is not UNSET}
        if not given and self.cost is None and self.unpriced is None:
            return None
        return RunBudget(**given, cost=self.cost, unpriced=self.unpriced, then=self.then)


class SubmitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be started by a worker. `input` is what the agent takes, as JSON.

    `key` is the id of the run, by default the one that the agent makes from the input: the same key is the same run.
    The run does not start before `at`. `priority` is from -9 to 9, and higher goes first. `budget` are the limits of
    the run, in place of those of its agent.
    """

    agent: Annotated[str, Meta(min_length=1, max_length=500)]
    input: msgspec.Raw
    queue: str = DEFAULT
    priority: int = 0
    at: Annotated[datetime, Meta(tz=True)] | None = None
    key: str | None = None
    tenant: str = ""
    budget: SubmittedBudget | None = None


class RunsPage(msgspec.Struct, frozen=True):
    """A page of the listing, by name. `next` is what `after` has to be for the next page; empty on the last one."""

    runs: list[RunSummary]
    next: str


class Caller(msgspec.Struct, frozen=True):
    """The identity under which the server knows the caller."""

    name: str
    via: str
    roles: list[Role]


def run_of(row: RunRow, contradicted: Mapping[str, list[str]]) -> RunSummary:
    """A line of the listing as the API shows it; `contradicted` has the steps with an open contradiction, by run."""
    return RunSummary(
        row.run, row.agent, row.status, row.reason, row.due_ms, row.created_ms, row.updated_ms, waits_of(row),
        contradicted.get(row.run, []),
    )  # fmt: skip


def me(who: Principal) -> Caller:
    """The caller as the API shows it."""
    return Caller(who.name, who.via, [grant.role for grant in who.grants])
