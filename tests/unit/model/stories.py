"""Operations told as stories: each line applies one record, and time passes only where the story says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from beforehand.model import records as r
from beforehand.model.contract import Contract, Key, Natural
from beforehand.model.decision import moves as m
from beforehand.model.decision.decide import decide
from beforehand.model.decision.evidence import until_believable_ms
from beforehand.model.decision.situation import Now, Situation
from beforehand.model.operation import OperationState
from beforehand.model.outcome import Basis, VerdictKind
from beforehand.model.transitions import apply
from beforehand.policies import READ_RETRY, Retry

STEP: Final = "desk/charge#1"
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
SETTLE: Final = 30 * SECOND

READ: Final = Contract("charge", effect="read", retry=READ_RETRY)
NATURAL: Final = Contract("charge", idempotency=Natural(within=timedelta(minutes=5)))
KEYED: Final = Contract("charge", idempotency=Key(ttl=timedelta(hours=24)))
VERIFIABLE: Final = Contract("charge", verifies=True, settle_ms=SETTLE)
PLAIN: Final = Contract("charge")
COLUMNS: Final = {"read": READ, "natural": NATURAL, "keyed": KEYED, "verifiable": VERIFIABLE, "none of these": PLAIN}


PATIENT: Final = Retry(attempts=50, elapsed=timedelta(days=30))
AGAIN: Final = "send: the same key is still remembered"


def changed(contract: Contract, **changes: Any) -> Contract:
    """The same contract with other clauses."""
    return msgspec.structs.replace(contract, **changes)


def pause(move: m.Move) -> tuple[int, int]:
    """The least and the most that is waited."""
    assert isinstance(move, m.Wait), move
    return move.low_ms, move.high_ms


class Story:
    """One operation, its clock, and the process that looks at it."""

    def __init__(self, contract: Contract = PLAIN, **intent: Any) -> None:
        self.contract = contract
        self.intent = r.Intent("charge", r.Raw(b"{}"), "digest", "contract", **intent)
        self.boot, self.up, self.wall = "monday", 5 * HOUR, 100 * DAY
        self.claimed_up = self.up
        self.operation: OperationState | None = None

    # --- time ---

    def later(self, ms: int) -> Story:
        """Time passes while this process waits."""
        self.up += ms
        self.wall += ms
        return self

    def reclaimed(self) -> Story:
        """Another process takes the run, on the same boot."""
        self.claimed_up = self.up
        return self

    def rebooted(self, wall_ms: int = MINUTE) -> Story:
        """The machine starts again; the wall clock shows that much more."""
        self.boot, self.up = f"after {self.boot}", 7 * SECOND
        self.wall += wall_ms
        return self.reclaimed()

    # --- records ---

    def took(self, record: r.OperationRecord) -> Story:
        """The operation after one more record."""
        self.operation = apply(self.operation, record, self.boot)
        return self

    def planned(self) -> Story:
        return self.took(r.OperationPlanned(step=STEP, intent=self.intent, **self.stamp()))

    def starts(self, approval: str = "") -> Story:
        number = len(self.operation.attempts) + 1 if self.operation else 1
        intent = None if self.operation else self.intent
        send_by = self.contract.timeout_ms
        return self.took(
            r.AttemptStarted(
                step=STEP, number=number, token=1, send_by=send_by, intent=intent, approval=approval, **self.stamp()
            )
        )

    def ends(self, kind: r.EndKind, *, over: bool = True, number: int = 0, **end: Any) -> Story:
        ended = r.AttemptEnded(
            step=STEP, number=number or self.number, end=r.End(kind, **end), over=over, **self.stamp()
        )
        return self.took(ended)

    def sent(self, kind: r.EndKind, *, over: bool = True, **end: Any) -> Story:
        """One more attempt, and its end in the same moment. A lost one whose call is over died with its process."""
        died = {"died": True} if kind == "lost" and over else {}
        return self.starts().ends(kind, over=over, **died, **end)

    def late(self, kind: r.EndKind, number: int = 1, **end: Any) -> Story:
        return self.took(r.LateReport(step=STEP, number=number, end=r.End(kind, **end), **self.stamp()))

    def verified(self, verdict: VerdictKind, **found: Any) -> Story:
        """Read back as the executor does it: an absence counts only when it may be believed."""
        believable = until_believable_ms(self.state, self.situation(), self.now) == 0
        covers = self.number if verdict == "did_not_happen" and believable else 0
        return self.took(
            r.Verified(step=STEP, verdict=verdict, believable=believable, through=covers, **found, **self.stamp())
        )

    def waits(self, ms: int, why: str, *, shut: bool = False) -> Story:
        until = self.wall + ms
        record = r.WaitScheduled(step=STEP, ms=ms, until=until, why=why, rule="drawn", shut=shut, **self.stamp())
        return self.took(record)

    def pauses(self, ms: int, why: str = "retry", *, shut: bool = False) -> Story:
        """A pause that is drawn, and waited out."""
        return self.waits(ms, why, shut=shut).later(ms)

    def parked(self, why: str = "nobody knows", asks: str = "", forgotten: bool = False) -> Story:
        stamp = self.stamp()
        return self.took(r.OperationParked(step=STEP, why=why, rule="parked", asks=asks, forgotten=forgotten, **stamp))

    def settled(self, status: Literal["succeeded", "failed", "unknown", "cancelled"], **more: Any) -> Story:
        return self.took(r.OperationSettled(step=STEP, status=status, basis=Basis("rule"), **more, **self.stamp()))

    def person(self, word: Literal["happened", "did_not_happen", "retry", "same_key"]) -> Story:
        return self.took(r.Resolved(STEP, word, "ann", self.number, "looked", **self.stamp()))

    def asked(self, digest: str = "a1", **more: Any) -> Story:
        """A person is asked to approve exactly what has this digest."""
        record = r.OperationParked(step=STEP, why="a gate", rule="parked", asks=digest, **more, **self.stamp())
        return self.took(record)

    def approved(self, by: str = "ann", until: int = 0) -> Story:
        return self.took(r.ApprovalGranted(step=STEP, approval="a1", by=by, until=until, **self.stamp()))

    def edited(self, arguments: bytes, by: str = "ann") -> Story:
        """A person proposes other arguments."""
        intent = msgspec.structs.replace(self.state.intent, arguments=r.Raw(arguments))
        edit = r.ArgumentsEdited(
            step=STEP, approval="a1", by=by, changes=r.Raw(arguments), note="n", intent=intent, **self.stamp()
        )
        return self.took(edit)

    def refused(self, reason: str = "") -> Story:
        return self.took(r.ApprovalRefused(step=STEP, approval="a1", by="ann", reason=reason, **self.stamp()))

    def amended(self, by: str = "desk/refund#1") -> Story:
        """Amends are begun."""
        return self.took(r.CompensationLinked(step=STEP, by=by, **self.stamp()))

    def contradicted(self, evidence: str = "a webhook") -> Story:
        return self.took(r.Contradicted(step=STEP, evidence=evidence, **self.stamp()))

    def held(self, intent: r.Intent | None = None) -> Story:
        return self.took(r.OperationHeld(step=STEP, transaction="trip", intent=intent, **self.stamp()))

    def released(self) -> Story:
        return self.took(r.HoldReleased(step=STEP, **self.stamp()))

    def deferred(self, ms: int, **said: Any) -> Story:
        until = self.wall + ms
        return self.took(r.OperationDeferred(step=STEP, number=self.number, until=until, **said, **self.stamp()))

    def reobserved(self, reading: Literal["same", "changed", "unreadable"], observed: bytes = b"2") -> Story:
        return self.took(r.Reobserved(step=STEP, reading=reading, observed=r.Raw(observed), **self.stamp()))

    # --- questions ---

    def decide(self, **situation: Any) -> m.Move:
        return decide(self.state, self.situation(**situation), self.now)

    def says(self, **situation: Any) -> str:
        """The move and its rule, in words."""
        return said(self.decide(**situation))

    def situation(self, **changes: Any) -> Situation:
        return Situation(**{"contract": self.contract, "claimed_up": self.claimed_up, **changes})

    def stamp(self) -> dict[str, Any]:
        return {"at": self.wall, "up": self.up}

    @property
    def now(self) -> Now:
        return Now(self.boot, self.up, self.wall, self.up)

    @property
    def state(self) -> OperationState:
        assert self.operation is not None, "the story has not begun"
        return self.operation

    @property
    def phase(self) -> str:
        return self.state.phase

    @property
    def number(self) -> int:
        return len(self.state.attempts)


def said(move: m.Move) -> str:
    """A move in words: what is done, and after the colon the rule that decided."""
    match move:
        case m.Settle():
            code = f"({move.code})" if move.code else ""
            what = f"{move.status}{code}{' unverified' if move.unverified else ''}"
        case m.Wait():
            what = f"wait for {move.why}"
        case _:
            what = re.sub(r"(?<!^)(?=[A-Z])", " ", type(move).__name__).lower()
    return f"{what}: {move.rule}"


def _sent(kind: r.EndKind = "ambiguous") -> Story:
    """An attempt whose call is not known to be over."""
    return Story(VERIFIABLE).sent(kind, over=False)


# A story for each phase, reached by records alone.
REACHED: Final[dict[str, Callable[[], Story]]] = {
    "new": Story,
    "planned": lambda: Story(VERIFIABLE).planned(),
    "ready": lambda: _sent("not_sent"),
    "running": lambda: Story(VERIFIABLE).starts(),
    "verifying": _sent,
    "gated": lambda: _sent("not_sent").parked(),
    "held": lambda: _sent("not_sent").held(),
    "awaiting": lambda: Story(VERIFIABLE).starts().deferred(HOUR),
    "unknown": lambda: _sent().settled("unknown"),
    "cancelled": lambda: _sent("not_sent").settled("cancelled"),
    "succeeded": lambda: _sent().settled("succeeded"),
    "failed": lambda: _sent().settled("failed"),
}
