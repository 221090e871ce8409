"""Any life of an operation: moves, deaths, boots, clocks, people and services in any order.

The machine performs what `decide` answers, as the executor does, against a world that keeps its promises.
At the end faults stop, time moves, and the outcome is compared with what really happened. (This file is
long because the rules of one state machine share its state.)
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from beforehand.model import records as r
from beforehand.model.contract import Contract, Key, Natural
from beforehand.model.decision import moves as m
from beforehand.model.decision.decide import decide
from beforehand.model.decision.evidence import attempt_timeout_ms, until_believable_ms
from beforehand.model.decision.situation import Now, Situation
from beforehand.model.operation import OperationState
from beforehand.model.transitions import apply
from beforehand.policies import Retry
from tests.property.world import World

STEP: Final = "desk/charge#1"
SETTLE: Final = 20_000
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
CLOCK_ERROR: Final = 60_000
FROZEN_MOVES: Final = 25  # more moves than that without time passing is a busy loop
REST_MOVES: Final = 3_000

KEYS = st.builds(
    Key,
    ttl=st.sampled_from([None, timedelta(minutes=4), timedelta(hours=2)]),
    in_progress=st.sampled_from(["rejects", "blocks", "runs_twice"]),
    stores=st.sampled_from(["success", "all"]),
)
VERIFIES: Final = {"verifies": True, "settle_ms": SETTLE, "verify_deadline_ms": 5 * MINUTE, "verify_every_ms": 15_000}
PROMISES: Final = st.one_of(
    st.just({}),
    st.just(VERIFIES),
    st.just({**VERIFIES, "expects": True}),
    st.sampled_from([{**VERIFIES, "check_first": True}, {**VERIFIES, "settle_ms": None}, {"idempotency": Natural()}]),
    st.just({**VERIFIES, "idempotency": Natural()}),
    st.builds(lambda key: {"idempotency": key, "settle_ms": SETTLE}, KEYS),
    st.builds(lambda key: {"idempotency": key, **VERIFIES}, KEYS),
)
CONTRACTS = st.builds(
    lambda promise, retry, observes: Contract("charge", timeout_ms=30_000, retry=retry, observes=observes, **promise),
    PROMISES,
    st.builds(
        Retry, attempts=st.sampled_from([5, 5, 2]), elapsed=st.sampled_from([timedelta(days=1), timedelta(minutes=2)])
    ),
    st.sampled_from([False, False, True]),
)


SURROUNDINGS: Final = st.sampled_from(
    [
        ("breaker_ms", 5_000), ("paused", "charge"), ("distrusted", "copied"), ("tool", "gone"), ("gate", "wanted"),
        ("hold", "trip"), ("at_hand", True), ("blocked", "cancel"), ("blocked", "deadline"), ("somebody", ""),
        ("the wall clock", ""),
    ]
)  # fmt: skip
READS: Final = st.sampled_from(["well", "well", "well", "not", "theirs"])
LATE: Final = st.sampled_from([0, 1, SETTLE // 4, SETTLE // 2])


class OperationMachine(RuleBasedStateMachine):
    """One operation and everything that can happen around it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1_000 * HOUR  # the true time
        self.boots = 0
        self.boot_began = self.time - HOUR
        self.drift = 0
        self.operation: OperationState | None = None
        self.open_situation: dict[str, Any] = {}
        self.reading: str = "unread"
        self.live: set[int] = set()
        self.unproven: dict[int, int] = {}  # attempts of a process not proven dead -> when it is surely over
        self.orders = 0
        self.sends = 0

    @initialize(
        contract=CONTRACTS,
        executable=st.sampled_from([True, True, False]),
        restored=st.sampled_from(["", "", "nothing is forgotten", "an attempt is forgotten"]),
        late=LATE,
        lag=LATE,
    )
    def begins(self, contract: Contract, executable: bool, restored: str, late: int, lag: int) -> None:
        self.contract = contract
        self.world = World(contract)
        self.restored = bool(restored)
        if restored == "an attempt is forgotten":  # the process that made it died before the copy was put in its place
            window = self.contract.settle_ms if self.contract.settle_ms is not None else 10 * HOUR
            self.world.arrives(self.time, min(late, window // 2), min(lag, window // 2), refuses=False)
        self.claimed = self.time
        self.open_situation["at_hand"] = not executable
        intent = r.Intent("charge", r.Raw(b"{}"), "d", "c", executable=executable)
        self.note(r.OperationPlanned(step=STEP, intent=intent, **self.stamp()))

    # --- time, chance and death ------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 200, 5_000, SETTLE, MINUTE, 6 * MINUTE, HOUR]))
    def time_passes(self, ms: int) -> None:
        self.time += ms

    @rule(boot=st.booleans(), proven=st.booleans(), ms=st.sampled_from([0, 1_000, HOUR]))
    def the_process_dies(self, boot: bool, proven: bool, ms: int) -> None:
        self.time += ms
        self._new_owner(boot=boot or not proven, proven=proven)

    def _new_owner(self, *, boot: bool, proven: bool) -> None:
        died = self.time
        for attempt in self.state.attempts:
            if attempt.number in self.live or attempt.end is None:
                self.unproven[attempt.number] = died + self.contract.timeout_ms
        self.live.clear()
        self.reading = "unread"
        if boot:
            self.boots += 1
            self.boot_began = self.time
        self.claimed = self.time
        for number in list(self.unproven):
            attempt = self.state.attempts[number - 1]
            if self.state.final:
                self.unproven.pop(number)
            elif proven or attempt.end is None:
                end = attempt.end or r.End("lost")
                self.note(r.AttemptEnded(step=STEP, number=number, end=end, over=proven, **self.stamp()))
                if proven:
                    self.unproven.pop(number)

    @precondition(lambda self: self.unproven)
    @rule()
    def a_silent_process_is_declared_dead(self) -> None:
        for number, over in list(self.unproven.items()):
            if self.state.final:
                self.unproven.pop(number)
            elif self.time >= over:
                self.unproven.pop(number)
                end = self.state.attempts[number - 1].end or r.End("lost")
                self.note(r.AttemptEnded(step=STEP, number=number, end=end, **self.stamp()))

    @precondition(lambda self: self.live)
    @rule(arrives=st.booleans(), speaks=st.booleans())
    def a_given_up_call_ends(self, arrives: bool, speaks: bool) -> None:
        number = min(self.live)
        self.live.discard(number)
        answer = "silence"
        if arrives and self.contract.key is None:  # with a key its send-by deadline keeps it from sending now
            answer = self.world.arrives(self.time, 0, 0, refuses=False)
        end = r.End("returned") if answer == "returned" and speaks else r.End("ambiguous")
        if speaks or self.state.final:
            self.note(r.LateReport(step=STEP, number=number, end=end, **self.stamp()))
        else:
            self.note(r.AttemptEnded(step=STEP, number=number, end=end, **self.stamp()))

    # --- what surrounds the operation --------------------------------------------------------------------

    @rule(what=SURROUNDINGS, on=st.booleans(), drift=st.integers(-CLOCK_ERROR // 2, CLOCK_ERROR // 2))
    def the_surroundings_change(self, what: tuple[str, Any], on: bool, drift: int) -> None:
        name, value = what
        self.open_situation.pop(name, None)
        if name == "somebody":
            self.world.changes += 1
        elif name == "the wall clock":
            self.drift = drift  # the whole error stays within what expiry allows for
        elif on:
            self.open_situation[name] = value

    @precondition(lambda self: self.phase in {"unknown", "gated"})
    @rule(word=st.sampled_from(["happened", "did_not_happen", "retry", "same_key"]))
    def a_person_decides(self, word: str) -> None:
        self.orders += word in {"retry", "same_key"}
        self.note(r.Resolved(STEP, word, "ann", len(self.state.attempts), **self.stamp()))

    @precondition(lambda self: self.phase == "gated")
    @rule()
    def a_person_approves(self) -> None:
        self.note(r.ApprovalGranted(step=STEP, approval="a", by="ann", **self.stamp()))

    @precondition(lambda self: self.phase == "held")
    @rule()
    def the_transaction_commits(self) -> None:
        self.note(r.HoldReleased(step=STEP, **self.stamp()))

    # --- the executor ----------------------------------------------------------------------------------------

    @rule(late=LATE, lag=LATE, share=st.floats(0, 1), reads=READS, often=st.integers(1, 4))
    def it_goes_silent(self, late: int, lag: int, share: float, reads: str, often: int) -> None:
        for _ in range(often):
            self.one_move("is silent", refuses=False, late=late, lag=lag, share=share, reads=reads)

    @rule(refuses=st.booleans(), late=LATE, share=st.floats(0, 1), reads=READS, often=st.integers(1, 4))
    def it_answers(self, refuses: bool, late: int, share: float, reads: str, often: int) -> None:
        for _ in range(often):
            self.one_move("answers", refuses=refuses, late=late, lag=0, share=share, reads=reads)

    @rule(how=st.sampled_from(["dies", "is lost", "was not sent", "hangs", "defers"]), late=LATE, reads=READS)
    def something_else_goes_wrong(self, how: str, late: int, reads: str) -> None:
        for _ in range(3):
            self.one_move(how, refuses=False, late=late, lag=late, share=1.0, reads=reads)

    def one_move(self, how: str, *, refuses: bool, late: int, lag: int, share: float, reads: str) -> None:
        """Ask `decide`, and do what it says."""
        move = decide(self.state, self.situation(), self.now)
        match move:
            case m.Send():
                self._attempt(how, late, lag, refuses=refuses)
            case m.Verify():
                self._verify(reads)
            case m.Observe():
                self._observe(reads)
            case m.Settle():
                self._settle(move)
            case m.Wait():
                self._wait(move, share)
            case m.Park():
                stamp = self.stamp()
                record = r.OperationParked(step=STEP, why=move.why, rule=move.rule, forgotten=move.forgotten, **stamp)
                self.note(record)
            case m.RequestApproval():
                self.note(r.OperationParked(step=STEP, why=move.rule, rule=move.rule, **self.stamp()))
            case m.Hold():
                self.note(r.OperationHeld(step=STEP, transaction="trip", **self.stamp()))
            case _:
                assert isinstance(move, m.Done), move
                assert self.state.final

    def _attempt(self, how: str, late: int, lag: int, *, refuses: bool) -> None:
        before = self.state
        assert not self.live, "an attempt while the call of an earlier one still runs"
        assert all(attempt.end is not None for attempt in before.attempts)
        assert before.intent.executable or self.open_situation.get("at_hand")
        assert not before.approval.person_asked or before.approval.extra_attempt, (
            "a person was asked, and it was sent again without an order"
        )
        assert not self.open_situation.get("blocked")
        if self.contract.observes and not before.approval.extra_attempt:
            assert self.reading == "same"
        landed_before = before.may_have_landed
        promised = self.contract.natural is not None or self.contract.key is not None
        assert promised or not landed_before or before.approval.extra_attempt == "retry", "sent again on a guess"
        send_by = attempt_timeout_ms(before, self.situation(), self.now)
        number = len(before.attempts) + 1
        self.note(r.AttemptStarted(step=STEP, number=number, token=1, send_by=send_by, **self.stamp()))
        self.reading = "unread"
        self.sends += 1
        if how in {"is lost", "was not sent"}:
            self._ends(number, "not_sent" if how == "was not sent" else "ambiguous")
            return
        if how == "hangs" and self.contract.key is None:  # it may still send when it ends
            self._hangs(number)
            return
        window = self.contract.settle_ms if self.contract.settle_ms is not None else 10 * HOUR
        answer = self.world.arrives(self.time, min(late, window // 2), min(lag, window // 2), refuses=refuses)
        if how == "answers":
            self._answered(number, answer, late)
        elif how == "dies":
            self._new_owner(boot=late > 1, proven=True)
        elif how == "hangs":
            self._hangs(number)
        elif how == "defers" and answer == "returned":
            until = self.now.wall + SETTLE
            self.note(r.OperationDeferred(step=STEP, number=number, until=until, **self.stamp()))
        else:
            self._ends(number, "ambiguous")

    def _hangs(self, number: int) -> None:
        self.live.add(number)
        end = r.End("ambiguous")
        self.note(r.AttemptEnded(step=STEP, number=number, end=end, over=False, **self.stamp()))

    def _answered(self, number: int, answer: str, late: int) -> None:
        committed = any(effect.at <= self.time for effect in self.world.effects)
        if answer == "returned" and (not committed or self.contract.natural is not None):
            self.time += late  # the answer comes after the commit
        kind = "ambiguous" if answer == "silence" else answer
        self._ends(number, kind)

    def _ends(self, number: int, kind: Any) -> None:
        self.note(r.AttemptEnded(step=STEP, number=number, end=r.End(kind), **self.stamp()))

    def _verify(self, reads: str) -> None:
        assert self.contract.verifies
        assert self.open_situation.get("tool") != "gone"
        believable = until_believable_ms(self.state, self.situation(), self.now) == 0
        found = self.world.happened(self.time)
        verdict: Any = "happened" if found else "did_not_happen"
        if reads != "well":
            verdict = "conflict" if reads == "theirs" and not found else "cannot_tell"
        through = len(self.state.attempts) if believable and verdict == "did_not_happen" else 0
        self.note(r.Verified(step=STEP, verdict=verdict, believable=believable, through=through, **self.stamp()))

    def _observe(self, reads: str) -> None:
        assert self.contract.observes
        self.reading = self.world.reading(self.time) if reads != "not" else "unreadable"
        if self.reading != "same":
            voids = bool(self.state.approval.approved_digest)
            record = r.Reobserved(step=STEP, reading=self.reading, **self.stamp())
            self.note(record)
            if voids and not self.state.approval.approved_digest:
                self.world.observed = self.world.changes
                self.reading = "unread"

    def _settle(self, move: m.Settle) -> None:
        if move.status == "succeeded" and self.contract.natural is not None:
            assert not self.live, "settled while a call of it runs"
            assert not self.unproven, "settled while a call of it may run elsewhere"
            assert all(effect.at <= self.time for effect in self.world.effects), "an attempt lands after a later write"
        self.note(r.OperationSettled(step=STEP, status=move.status, basis=move.basis, rule=move.rule, **self.stamp()))

    def _wait(self, move: m.Wait, share: float) -> None:
        if move.until_woken:
            return
        assert move.low_ms <= move.high_ms
        if move.why in {"retry", "verify"} and not move.drawn:
            ms = int(move.low_ms + share * (move.high_ms - move.low_ms))
            self.note(
                r.WaitScheduled(
                    step=STEP, ms=ms, until=self.now.wall + ms, why=move.why, rule=move.rule, **self.stamp()
                )
            )
            return
        assert move.high_ms > 0, "a pause of no length is a busy loop"
        self.time += int(share * move.high_ms)

    # --- at every moment ---------------------------------------------------------------------------------------

    @invariant()
    def decide_is_total(self) -> None:
        if self.operation is not None:
            assert isinstance(decide(self.operation, self.situation(), self.now), get_args(m.Move))

    @invariant()
    def the_outcome_is_what_happened(self) -> None:
        """Final outcomes are checked against every effect that will ever land, the late ones included."""
        if self.operation is None or self.live or self.unproven:
            return
        state, effects = self.state, len(self.world.effects)
        if state.settlement.basis is not None and state.settlement.basis.by != "person":
            if state.phase == "succeeded":
                assert effects >= 1, "false success"
            if state.phase in {"failed", "cancelled"}:
                assert effects == 0, "false failure"
        if self.contract.natural is None:
            assert effects <= 1 + self.orders, "done twice"
        if self.contract.idempotency is None and not self.contract.verifies:
            assert sum(attempt.standing(0) != "unsent" for attempt in state.attempts) <= 1 + self.orders

    # --- the end of time -----------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Faults stop, time moves: the operation is settled, or a person is asked."""
        if self.operation is None:
            return
        for what in ("breaker_ms", "paused", "distrusted", "tool", "hold"):
            self.open_situation.pop(what, None)
        self.open_situation["at_hand"] = True
        began, frozen_at, frozen = self.time, self.time, 0
        for _ in range(REST_MOVES):
            if self.phase in {"unknown", "gated"} or self.state.final:
                break
            self._rests()
            frozen = frozen + 1 if self.time == frozen_at else 0
            frozen_at = self.time
            assert frozen <= FROZEN_MOVES, ("a busy loop", self.state)
        else:
            raise AssertionError(("it never ends", self.state))
        assert self.time - began < 3 * HOUR
        self.the_outcome_is_what_happened()

    def _rests(self) -> None:
        """One move of a quiet day."""
        move = decide(self.state, self.situation(), self.now)
        if isinstance(move, m.Wait) and move.until_woken:
            match move.why:
                case "call":
                    self.a_given_up_call_ends(arrives=False, speaks=False)
                case "commit":
                    self.the_transaction_commits()
                case "end":
                    self.time += MINUTE
                    self.a_silent_process_is_declared_dead()
                case _:
                    raise AssertionError(("nobody will wake it", move, self.state))
            return
        if self.live:
            self.a_given_up_call_ends(arrives=False, speaks=False)
        if self.unproven:
            self.time += MINUTE
            self.a_silent_process_is_declared_dead()
        self.one_move("answers", refuses=False, late=0, lag=0, share=1.0, reads="well")

    # --- plumbing ------------------------------------------------------------------------------------------------

    def note(self, record: r.OperationRecord) -> None:
        before = self.operation
        self.operation = apply(before, record, self.boot)
        if before is not None and before.final:
            assert self.operation.phase == before.phase, "a final state was left"
            assert self.operation.settlement.basis == before.settlement.basis

    def situation(self) -> Situation:
        return Situation(
            contract=self.contract,
            claimed_up=self.claimed - self.boot_began,
            live=frozenset(self.live),
            began_doubtful=self.restored,
            reading=self.reading,
            clock_error_ms=CLOCK_ERROR,
            **self.open_situation,
        )

    def stamp(self) -> dict[str, int]:
        return {"at": self.now.wall, "up": self.now.up}

    @property
    def now(self) -> Now:
        return Now(self.boot, up := self.time - self.boot_began, self.time + self.drift, up)

    @property
    def boot(self) -> str:
        return f"boot {self.boots}"

    @property
    def state(self) -> OperationState:
        assert self.operation is not None
        return self.operation

    @property
    def phase(self) -> str:
        return self.operation.phase if self.operation is not None else "new"


TestOperationMachine = OperationMachine.TestCase
TestOperationMachine.settings = settings(max_examples=max(150, settings().max_examples), stateful_step_count=30)


class NaturalMachine(OperationMachine):
    """The same with natural writes only, so that lives with several attempts of them are met often."""

    @initialize(
        promise=st.sampled_from([{}, VERIFIES]),
        window=st.sampled_from([SETTLE // 2, SETTLE]),
        observes=st.sampled_from([False, False, True]),
    )
    def begins(self, promise: dict[str, Any], window: int, observes: bool) -> None:
        natural = Natural(settle_window=timedelta(milliseconds=window))
        contract = Contract("charge", timeout_ms=30_000, observes=observes, idempotency=natural, **promise)
        super().begins(contract, executable=True, restored="", late=0, lag=0)


TestNaturalMachine = NaturalMachine.TestCase
TestNaturalMachine.settings = settings(max_examples=max(150, settings().max_examples), stateful_step_count=20)
