"""One operation as its records describe it: a frozen value, folded by `transitions.apply`."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.model.contract import Contract
from beforehand.model.ids import claim_identity, idempotency_key, operation_id
from beforehand.model.outcome import FINAL, SETTLED, Basis, PendingEffect, Phase, Status
from beforehand.model.policy import OnExpiry, PolicyFacts, Ruling
from beforehand.model.records import NOTHING, End, Intent, LateReport, Raw
from beforehand.policies import Require, milliseconds

OTHERWISE: Final = "otherwise"
"""A placeholder for the digest of a void question until a new one is asked: no answer can refer to it."""

SIGNED_IN: Final = frozenset({"password", "oidc", "proxy"})
"""How the name of a present person is known, as opposed to a program's, or a name that was only typed."""
Charged = Literal["", "attempts", "in_progress"]
AttemptStatus = Literal["open", "returned", "rejected", "unsent", "absent", "ambiguous"]


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One try under one lease.

    `up` is when it started on the clock of `boot`. `over_up` is when its call is known to have
    ended (on `over_boot`); None while that is not known. `over_at` is the wall clock of that moment
    where it lay ahead: the answer is promised until then, and the effect may land until then. While the
    call may still run, `given_up` is when that was recorded, on `over_boot`.
    """

    number: int
    token: int
    boot: str
    up: int
    at: int
    timeout_ms: int  # its own, where its key is forgotten sooner; 0: the contract's
    contract: str
    end: End | None = None
    over_boot: str = ""
    over_up: int | None = None
    over_at: int = 0
    given_up: int = 0
    late: bool = False  # the end was reported after the attempt had been given up

    @property
    def unsent(self) -> bool:
        """True if it is proven that nothing was sent."""
        return self.end is not None and self.end.kind == "not_sent"

    @property
    def in_progress(self) -> bool:
        """True if the system answered that it still works on another request with our key."""
        return self.end is not None and self.end.kind == "key_in_progress"

    def standing(self, absent_through: int) -> AttemptStatus:
        """The proof that this attempt gives, given that a believed absence covers attempts up to `absent_through`."""
        end = self.end
        if end is None:
            return "open"
        match end.kind:
            case "returned" if not end.unfit:
                return "returned"
            case "rejected":
                return "rejected"
            case "not_sent":
                return "unsent"
            case _:
                return "absent" if self.number <= absent_through else "ambiguous"


class ScheduledWait(msgspec.Struct, frozen=True, gc=False):
    """A pause the executor drew: `ms` from `up` on `boot`, about the wall clock's `until`.

    It is `charged` to the time for attempts (`Retry.elapsed`), or to the patience with a key that is in progress.
    """

    boot: str
    up: int
    ms: int
    until: int
    why: str
    rule: str
    charged: Charged = ""


class Pauses(msgspec.Struct, frozen=True, gc=False):
    """Milliseconds of pauses that are over: between attempts, and for a key that was in progress."""

    attempts_ms: int = 0
    in_progress_ms: int = 0


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an operation and its proof.

    `lost` and `missing` may be known before the outcome: a verifier found the effect, without its result or in part.
    `stood_in`: a person answered in place of the tool, so nothing was sent. `pending_effect` is what was pending about
    the same thing, so nothing was sent either.
    """

    basis: Basis | None = None
    code: str = ""
    result: Raw = NOTHING
    lost: bool = False
    unverified: bool = False
    missing: tuple[str, ...] = ()
    at: int = 0
    stood_in: bool = False
    pending_effect: PendingEffect | None = None


class Verification(msgspec.Struct, frozen=True, gc=False):
    """The results of reading the world back.

    `checks` counts all verifications, `checked_since` those after the last attempt, the first of them at `checked_up`,
    and `believable_checks` those of them made when an absence could be believed. A believed absence covers attempts 1
    to `absent_through`. `verified_absent_first` and `believed_absent_first`: nothing was there before the first
    attempt. `found` is the result that a verifier found, `conflict` what it found that is not ours; `absent_last`: the
    last reading found nothing, believable or not. `forgotten`: a restored journal may have forgotten an attempt, a
    person was asked, and it has not been shown that there was none.
    """

    checks: int = 0
    believable_checks: int = 0
    checked_since: int = 0
    checked_boot: str = ""
    checked_up: int = 0
    absent_through: int = 0
    conflict: str = ""
    absent_last: bool = False
    found: Raw | None = None
    verified_absent_first: bool = False
    believed_absent_first: bool = False
    forgotten: bool = False

    def after_restore(self) -> Verification:
        """The counts where a journal was restored: what was read before says nothing of what it has forgotten since."""
        read = replace(self, verified_absent_first=False, believed_absent_first=False)
        return replace(read, checked_since=0, believable_checks=0)

    def after_attempt(self) -> Verification:
        """The counts as a further attempt begins: what was read before it proves nothing about it."""
        if not self.checked_since and not self.believable_checks:
            return self
        return replace(self, checked_since=0, believable_checks=0, absent_last=False)


class Approval(msgspec.Struct, frozen=True, gc=False):
    """The question to people about the operation, and their answers.

    `person_asked` stays set once a person was asked about something that may have landed; `asked_at` is the wall clock.
    `extra_attempt` is a person's command for one more attempt: it did not happen (`retry`), or the system dedupes on
    its key (`same_key`). `asked_digest` is the digest of what is to be approved, by `people_needed` people, until the
    wall clock `answer_by`, in that `queue`; `require` says how they have to be known. `question_changed`: people are
    asked about something else than at first. `approved_digest` is what `approvers` approved, until `approved_until`;
    `permission` is the standing permission that replaces their approval. `spent` and `spent_until` are the command and
    the expiry that the last attempt used. `orders` counts people's commands to send again what had been approved.
    """

    person_asked: bool = False
    asked_at: int = 0
    extra_attempt: Literal["", "retry", "same_key"] = ""
    asked_digest: str = ""
    people_needed: int = 1
    answer_by: int = 0
    queue: str = ""
    on_expiry: OnExpiry = "refuse"
    require: Require | None = None
    question_changed: bool = False
    approvers: tuple[str, ...] = ()
    approved_digest: str = ""
    approved_until: int = 0
    permission: str = ""
    spent: Literal["", "retry", "same_key"] = ""
    spent_until: int = 0
    orders: int = 0

    def expired(self, wall_ms: int) -> bool:
        """True if the time to answer is over; where the question is held open, it never is."""
        return 0 < self.answer_by <= wall_ms and self.on_expiry != "hold"

    def used(self, digest: str, permission: str) -> Approval:
        """The approval once an attempt uses it: it no longer expires, and covers the retries of this operation.

        No other operation can use it, because the digest covers the name of the operation (`ids.approval_digest`). A
        command for one more attempt is used up.
        """
        if not digest and not permission and not self.approved_until and not self.extra_attempt:
            return self
        return replace(
            self,
            approved_digest=digest or self.approved_digest,
            permission=permission or self.permission,
            approved_until=0,
            extra_attempt="",
            spent=self.extra_attempt,
            spent_until=self.approved_until,
        )

    def unused(self) -> Approval:
        """The approval as it was before the last attempt, which was recorded and withheld."""
        if not self.spent and not self.spent_until:
            return self
        return replace(self, extra_attempt=self.spent, approved_until=self.spent_until, spent="", spent_until=0)

    def lacks_proof(self, via: str, proven_ms: int, now_ms: int) -> str:
        """Name what is missing for a person's approval to count; empty where nothing is.

        `via` is how the person's name is known, `proven_ms` the wall clock at which they proved it with a password.
        """
        require = self.require
        if require is None:
            return ""
        if require.person and via not in SIGNED_IN:
            return "it takes a person who signed in, and no token and no name that was typed"
        fresh = require.fresh_sign_in
        if fresh is not None and not (proven_ms > 0 and now_ms - proven_ms <= milliseconds(fresh)):
            return f"it takes a person who signed in with a password in the last {milliseconds(fresh) // 1000} s"
        return ""


class PolicyJudgement(msgspec.Struct, frozen=True, gc=False):
    """The ruling of a policy, the facts that it judged by, and its version."""

    ruling: Ruling | None = None
    facts: PolicyFacts | None = None
    policy: str = ""


class Editing(msgspec.Struct, frozen=True, gc=False):
    """The intent that code `called` with, where people changed it, and these `editors` in their order."""

    called: Intent | None = None
    editors: tuple[str, ...] = ()


class Deferral(msgspec.Struct, frozen=True, gc=False):
    """An answer that comes later: its `key`, how often to look for it, and the `thing` that it is about."""

    key: str = ""
    every_ms: int = 0
    thing: str = ""


class Links(msgspec.Struct, frozen=True, gc=False):
    """Other operations that this one depends on, and evidence that came after its outcome.

    `reused` is the operation whose outcome it took, `compensated_by` the newest compensation. `amended`: that
    succeeded while it was unknown, and is harmless without an effect. `overtaken` is the
    compensation that was begun before it was known that there is an effect: whether it met it is not known either.
    `disputes` are the answers that came before there was an outcome and say the opposite of the first one. `doubt` is
    what holds since it was contradicted: a person is `asked`, or said that it did not happen, so what it compensates
    `stands`.
    """

    reused: str = ""
    compensated_by: str = ""
    amended: bool = False
    overtaken: str = ""
    contradicted: tuple[str, ...] = ()
    contradicted_at: int = 0
    doubt: Literal["", "asked", "stands"] = ""
    disputes: tuple[LateReport, ...] = ()


class OperationState(msgspec.Struct, frozen=True, gc=False):
    """Everything the records say about one operation.

    `rule` and `reason` say why it is in its phase. `pauses` sums what was waited for between attempts, without the
    present pause `wait`; `waits_for` says in words what it waits for. `released`: it was held, and its transaction
    committed. `planned_up` is when it was planned, on `planned_boot`. `shared` are the budgets of several runs that it
    is charged to, each with its period.

    Parts that most operations never use share one empty value, so that a copy of the state copies references only.
    """

    step: str
    intent: Intent
    phase: Phase
    contract: str
    attempts: tuple[Attempt, ...] = ()
    rule: str = ""
    reason: str = ""
    settlement: Settlement = Settlement()
    wait: ScheduledWait | None = None
    waits_for: str = ""
    pauses: Pauses = Pauses()
    observed: Raw = NOTHING
    verification: Verification = Verification()
    approval: Approval = Approval()
    judgement: PolicyJudgement = PolicyJudgement()
    editing: Editing = Editing()
    deferral: Deferral = Deferral()
    links: Links = Links()
    released: bool = False
    planned_boot: str = ""
    planned_up: int = 0
    shared: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> Status:
        """The public state: the seven phases before an outcome are all `pending`."""
        phase = self.phase
        if phase == "succeeded" or phase == "failed" or phase == "unknown" or phase == "cancelled":  # noqa: PLR1714  # narrows for the type checkers
            return phase
        return "pending"

    @property
    def settled(self) -> bool:
        """True if there is an outcome, `unknown` included."""
        return self.phase in SETTLED

    @property
    def final(self) -> bool:
        """True if the state can never change again."""
        return self.phase in FINAL

    @property
    def asks(self) -> bool:
        """True if a person is asked about it."""
        return self.phase in {"gated", "unknown"} and not self.links.amended

    def settled_by_key(self, contract: Contract) -> bool:
        """True if sending it again under its key tells what happened, and what then is there can be compensated."""
        return contract.compensates and contract.key is not None and not self.key_unread and not self.approval.orders

    @property
    def wants_approval(self) -> bool:
        """True if a person is asked now to approve it; once approved and then unknown, the question is another one."""
        return self.phase == "gated" and bool(self.approval.asked_digest)

    @property
    def needed_yes(self) -> bool:
        """True if a person, or a standing permission, allowed it: who says what happened needs the same rights."""
        approval = self.approval
        return bool(approval.approved_digest or approval.permission or approval.orders or self.intent.covered)

    @property
    def can_conflict(self) -> bool:
        """True if its outcome concerns other operations: they share its business key, its words, or its thing."""
        return self.intent.can_conflict or bool(self.deferral.thing)

    @property
    def edits(self) -> bool:
        """True if a person changed the arguments of the call: only the record holds what will be sent."""
        return self.editing.called is not None

    @property
    def as_called(self) -> Intent:
        """The intent that code called with: a person may have changed what is sent."""
        return self.editing.called or self.intent

    @property
    def landed(self) -> bool:
        """True if there is an effect: it succeeded, or was contradicted after it had not."""
        return (self.phase == "succeeded" and not self.settlement.stood_in) or bool(self.links.contradicted)

    @property
    def returned(self) -> bool:
        """True if an attempt returned, whatever its outcome still waits for."""
        return any(attempt.standing(self.verification.absent_through) == "returned" for attempt in self.attempts)

    @property
    def key_unread(self) -> bool:
        """True if an attempt of a keyed tool may have landed without its key, so that nothing was deduped."""
        return any(
            attempt.end is not None and not attempt.end.key_read and not attempt.unsent for attempt in self.attempts
        )

    @property
    def may_have_been_sent(self) -> bool:
        """True if there was an attempt, on record or forgotten."""
        return self.verification.forgotten or bool(self.attempts)

    @property
    def may_have_landed(self) -> bool:
        """True if an effect may be there: of an attempt on record, or of one that is forgotten."""
        return self.verification.forgotten or self.unproven

    @property
    def unproven(self) -> bool:
        """True if some attempt on record is not proven unsent, refused or absent."""
        harmless = {"unsent", "rejected", "absent"}
        return any(attempt.standing(self.verification.absent_through) not in harmless for attempt in self.attempts)

    def pauses_until(self, boot: str, up: int, wall: int) -> Pauses:
        """The pauses as of that moment, the present one included; none counts for longer than it was to last."""
        wait, pauses = self.wait, self.pauses
        if wait is None:
            return pauses
        passed = up - wait.up if boot == wait.boot else wall - (wait.until - wait.ms)
        ms = min(wait.ms, max(0, passed))
        match wait.charged:
            case "attempts":
                return Pauses(pauses.attempts_ms + ms, pauses.in_progress_ms)
            case "in_progress":
                return Pauses(pauses.attempts_ms, pauses.in_progress_ms + ms)
            case _:
                return pauses

    @property
    def in_progress(self) -> bool:
        """True if the last answer said that our key is still being worked on."""
        return bool(self.attempts) and self.attempts[-1].in_progress

    @property
    def times_in_progress(self) -> int:
        """How often the answer was that our key is still being worked on."""
        return sum(attempt.in_progress for attempt in self.attempts)

    @property
    def deaths(self) -> int:
        """How many attempts were in flight when their process died, as far as that is proven."""
        return sum(1 for attempt in self.attempts if attempt.end is not None and attempt.end.died)


def key_of(namespace: str, run: str, step: str, intent: Intent) -> str:
    """The idempotency key of an operation: from its business key where it has one, else from its own name."""
    if intent.claim:
        return idempotency_key(namespace, claim_identity(intent.tool, intent.claim, intent.outside))
    return idempotency_key(namespace, operation_id(run, step))
