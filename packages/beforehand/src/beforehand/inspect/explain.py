"""Explanation of an operation's state: its attempts, the proofs, and the next move by `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from beforehand.engine.breaker import paused_with, unpausing
from beforehand.engine.recorded_operation import RecordedOperation, SharedState, read_operation, with_asked
from beforehand.engine.settings import Settings
from beforehand.engine.situation import Inputs, judge
from beforehand.inspect.contracts import repeat_words
from beforehand.inspect.contradictions import answers_about, relied_on
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.render_records import (
    answer_text,
    basis_text,
    end_text,
    ruling_text,
    standing_text,
    verdict_text,
)
from beforehand.inspect.text import moment
from beforehand.model import records as r
from beforehand.model.commands import command_stream
from beforehand.model.contract import Contract
from beforehand.model.decision import moves as m
from beforehand.model.decision.evidence import AttemptEvidence, evidence_of, key_left_ms, natural_left_ms
from beforehand.model.decision.situation import BLOCKED, Now, Situation
from beforehand.model.operation import Attempt, OperationState, key_of
from beforehand.model.outcome import RETURNED
from beforehand.model.policy import PolicyFacts, Rule
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import NAME, to_type
from beforehand.model.waits import (
    AMENDABLE,
    DISPUTED,
    answers_with,
    sends_on_order,
    sent_again_by,
    statements_on,
    stored_contract,
)
from beforehand.people.earlier_answers import answers_about_step
from beforehand.people.policy.archive import kept_policy

_STANDING: Final = {
    "open": "may have landed: its end is not on record",
    "returned": "landed: it returned",
    "rejected": "did not land: it was refused",
    "unsent": "did not land: nothing was sent",
    "absent": "did not land: it was looked for, and is not there",
    "ambiguous": "may have landed",
}
_MOVES: Final = {
    "Send": "send it", "Observe": "read its preconditions", "Verify": "read the world back", "Wait": "wait",
    "Judge": "let the policy judge it",
    "RequestApproval": "ask a person", "Hold": "hold it", "Reuse": "reuse an earlier outcome",
    "Settle": "record its outcome", "Park": "ask a person", "Done": "nothing",
}  # fmt: skip


class Answer(msgspec.Struct, frozen=True):
    """One question, answered in a word and explained in a sentence."""

    answer: str
    because: str = ""


class Policing(msgspec.Struct, frozen=True):
    """The ruling of a policy on it: the rule, the facts, and the draw.

    `read` is that rule as it read then, where the journal has kept it.
    """

    version: str
    word: str
    rule: str
    says: str
    facts: PolicyFacts | None
    stratum: str
    sampled: bool
    shadow: bool
    read: Rule | None = None


class Explanation(msgspec.Struct, frozen=True):
    """Everything an operator asks about one operation. `move` and `rule` are what the next owner of the run decides.

    `unread` names what that owner reads besides the journal, and may decide otherwise for.

    `words` are people's answers about it: when, who, what, and how their name is known. `relied_on` is the state
    observed before it was sent, `expected` the evidence that its success should leave; None where nothing was declared.
    `due` is the wall clock at which the wait that is the next move ends; 0 where no clock ends it.
    `contradicted` is the evidence against a final outcome, and `relied` names what relied on that outcome.
    """

    operation: str
    tool: str
    title: str
    arguments: r.Raw
    status: str
    phase: str
    key: str
    attempts: list[str]
    attempted: Answer
    acknowledged: Answer
    proven: Answer
    landed: Answer
    retry: Answer
    amends: Answer
    decided_by: str
    words: list[str]
    policy: Policing | None
    move: str
    rule: str
    unread: list[str]
    next_step: list[str]
    relied_on: r.Raw | None = None
    expected: r.Raw | None = None
    contradicted: tuple[str, ...] = ()
    relied: tuple[str, ...] = ()
    due: int = 0


async def explain(reader: JournalReader, operation: str, now: Now) -> Explanation:
    """Judge the operation by its records, as the next owner of its run will, with default settings.

    Raises `UsageError`.
    """
    history, state = await reader.operation(operation)
    named = () if state.links.contradicted else (state.step,)  # of a contradicted one, all that came after it is named
    records = [record async for _, record in reader.records(history.run, naming=named)]
    verdicts = [one for one in records if isinstance(one, r.Verified) and one.step == state.step]
    ruled = [one for one in records if isinstance(one, r.Ruled) and one.step == state.step]
    shared = await SharedState(reader.journal, reader.identity, state.intent.tool, now, Settings()).read()
    recorded = await read_operation(shared, history, state)
    state, inputs = recorded.operation, recorded.inputs
    situation, move = judge(state, inputs, now)
    evidence = evidence_of(state, situation, now)
    return Explanation(
        operation=operation,
        tool=state.intent.tool,
        title=state.intent.title,
        arguments=state.intent.arguments,
        status=state.status,
        phase=state.phase,
        key=key_of(reader.identity.namespace, history.run, state.step, state.intent),
        attempts=[_attempt_text(state, attempt) for attempt in state.attempts],
        attempted=_attempted(state),
        acknowledged=_acknowledged(state),
        proven=_proven(state, verdicts),
        landed=_landed(state, evidence),
        retry=_retry(history, state, situation, evidence, now),
        amends=_amends(state, inputs.contract),
        policy=await _policing(reader, ruled[-1]) if ruled else None,
        decided_by=state.rule or ("returned" if state.settlement.basis == RETURNED else ""),
        words=[
            *await answers_about_step(reader, history.run, state.step, records),
            *(await answers_about(reader, history.run, state.step) if state.links.contradicted else ()),
        ],
        move=_MOVES[type(move).__name__],
        rule=move.rule,
        unread=[] if state.final else await unread(shared, recorded, move),
        next_step=await _next_of_contradicted(reader, history, state)
        if state.links.contradicted
        else _next(history, state, move, shared.pauses, driven=bool(situation.live)),
        relied_on=None if state.observed == r.NOTHING else state.observed,
        expected=None if state.intent.expected == r.NOTHING else state.intent.expected,
        contradicted=state.links.contradicted,
        relied=await relied_on(reader, history, records, state.step) if state.links.contradicted else (),
        due=now.wall + move.high_ms if isinstance(move, m.Wait) and move.drawn else 0,
    )


# --- the next move ---------------------------------------------------------------------------------------


async def unread(shared: SharedState, recorded: RecordedOperation, move: m.Move) -> list[str]:
    """Name the things that the next owner reads besides the journal, and may make another move for."""
    operation, inputs = recorded.operation, recorded.inputs
    history, words = inputs.history, list[str]()

    def otherwise(inputs: Inputs) -> bool:
        return judge(operation, inputs, shared.now)[1] != move

    if await shared.journal.entries(command_stream(history.run), history.entry_seen):
        words.append("commands to the run that are not applied yet")
    gate = inputs.contract.gate
    if (
        gate is not None
        and not operation.attempts
        and otherwise(with_asked(msgspec.structs.replace(inputs, gated=not inputs.gated), operation))
    ):
        words.append(f"its gate: {gate.when}")
    ruled = operation.judgement.ruling is not None
    asked = bool(operation.approval.asked_digest) and not ruled  # no policy ruled before that
    if not asked and otherwise(msgspec.structs.replace(inputs, policy="one that has not ruled yet")):
        words.append("whether the policy of the app has changed" if ruled else "the policy of the app")
    if not operation.attempts and inputs.other is None and shared.pending_index.of(operation.intent.tool):
        words.append("what is pending about the same thing")
    return words


# --- the answers -----------------------------------------------------------------------------------------


async def _policing(reader: JournalReader, record: r.Ruled) -> Policing:
    kept = await kept_policy(reader, record.policy)
    rules = {one.name: one for one in kept.rules} if kept is not None else {}
    ruling, says = record.ruling, ruling_text(record.ruling, record.policy)
    drawn = ruling.stratum, ruling.sampled, ruling.shadow
    return Policing(record.policy, ruling.word, ruling.rule, says, record.facts, *drawn, rules.get(ruling.rule))


_FORGOTTEN: Final = Answer("perhaps", "before the journal was restored; no attempt of that time is on record")


def _attempt_text(state: OperationState, attempt: Attempt) -> str:
    end = end_text(attempt.end) if attempt.end else "no end on record: it may still be running"
    if _answered_later(state, attempt):
        assert attempt.end is not None, attempt
        end = f"accepted, and answered later: {answer_text(attempt.end)}"
    return f"attempt {attempt.number} at {moment(attempt.at)}: {end}"


def _answered_later(state: OperationState, attempt: Attempt) -> bool:
    """True if the system accepted this attempt first, and the answer that proves it came under its key."""
    answered = attempt.late and attempt.end is not None and attempt.end.kind in {"returned", "rejected"}
    return answered and bool(state.deferral.key) and attempt.number == len(state.attempts)


def _attempted(state: OperationState) -> Answer:
    if state.links.reused:
        return Answer("no", f"the outcome of {state.links.reused} was given instead; nothing was sent")
    if not state.attempts:
        unsent = Answer("no", "its intent is recorded, nothing was ever sent")
        return _FORGOTTEN if state.verification.forgotten else unsent
    times = len(state.attempts)
    again = f", on purpose although something was pending: {state.intent.again}" if state.intent.again else ""
    return Answer(
        "yes", ("once" if times == 1 else f"{times} times") + standing_text(state.approval.permission) + again
    )


def _acknowledged(state: OperationState) -> Answer:
    answered = [a for a in state.attempts if a.end is not None and a.end.kind in {"returned", "rejected"}]
    if not answered:
        return Answer("no", "no attempt got an answer" if state.may_have_been_sent else "nothing was sent")
    last = answered[-1]
    late = ", late" if last.late else ""
    assert last.end is not None, last
    if _answered_later(state, last):
        answers = "; then: ".join(map(answer_text, (last.end, *(one.end for one in state.links.disputes))))
        return Answer("yes", f"attempt {last.number} was accepted, and answered later: {answers}")
    return Answer("yes", f"attempt {last.number} {end_text(last.end)}{late}")


def _proven(state: OperationState, verdicts: list[r.Verified]) -> Answer:
    read = f"; last reading: {verdict_text(verdicts[-1])}" if verdicts else ""
    if state.settlement.basis is None or not state.final:
        return Answer("no", ("a person is asked" if state.asks else "it is not settled") + read)
    proof = basis_text(state.settlement.basis)
    if state.settlement.basis == RETURNED and state.attempts and _answered_later(state, state.attempts[-1]):
        proof = "the later answer said so"
    if state.settlement.basis.by == "rule" and state.reason:
        proof = state.reason
    if state.links.contradicted:
        return Answer(
            "disputed", f"recorded as {state.status}: {proof}; against it: {'; '.join(state.links.contradicted)}{read}"
        )
    return Answer("yes", f"{state.status}: {proof}{read}")


def _landed(state: OperationState, evidence: AttemptEvidence) -> Answer:
    if state.links.contradicted:
        return Answer("disputed", "the record and the evidence against it disagree: a person has to decide")
    if state.phase == "succeeded":
        return Answer("yes", "not read back in time" if state.settlement.unverified else "")
    if state.final and state.settlement.basis is not None and state.settlement.basis.by == "person":
        return Answer("no", basis_text(state.settlement.basis))
    if state.verification.forgotten and not state.final and not evidence.ambiguous:
        return _FORGOTTEN
    if state.phase == "unknown" and not evidence.ambiguous:
        return Answer("perhaps", state.reason or "the answers to it disagree")
    if state.final or not evidence.ambiguous:
        sent = any(a.end is None or a.end.kind != "not_sent" for a in state.attempts)
        return Answer("no", "every attempt is proven unsent, refused or absent" if sent else "nothing was sent")
    doubtful = ", ".join(
        f"attempt {a.number} {_STANDING[a.standing(state.verification.absent_through)]}" for a in evidence.ambiguous
    )
    return Answer("perhaps", doubtful)


def _why_never(state: OperationState) -> str:
    """Why it must not be sent again; empty if that depends on its attempts."""
    if state.links.contradicted:
        return "first it must be known which of the two is true"
    if state.phase == "succeeded":
        return "it happened: another one would be a second effect"
    if state.links.reused:
        return f"{state.links.reused} stands"
    if state.intent.completes:
        return f"it is a part of {state.intent.completes}, and is never sent by itself"
    forgotten = "first it must be known that nothing happened before the journal was restored"
    return forgotten if state.verification.forgotten else ""


def _retry(
    history: RunHistory, state: OperationState, situation: Situation, evidence: AttemptEvidence, now: Now
) -> Answer:
    if why := _why_never(state):
        return Answer("no", why)
    if not evidence.ambiguous:
        if state.phase == "unknown":
            return Answer("no", "a person has to state first what happened")
        return Answer("yes", "nothing took effect")
    if situation.blocked in {"cancel", "aborting"} and not sends_on_order(history, state):
        return Answer("no", f"{BLOCKED[situation.blocked]}, so nothing more is sent for it")
    match evidence.repeat_safety:
        case "keyed":
            left = key_left_ms(state, situation, now)
            return Answer("yes", f"the system dedupes on the same key{_left(left)}")
        case "natural":
            return Answer("yes", f"repeating changes nothing{_left(natural_left_ms(state, situation, now))}")
        case "verifiable":
            return Answer("not yet", "its verifier has to prove first that it did not happen")
        case _:
            return Answer("no", repeat_words(situation.contract, key_unread=state.key_unread))


def _left(ms: int) -> str:
    if ms >= 10**14:
        return ""
    return f", for another {ms // 60_000} min" if ms >= 120_000 else f", for another {max(0, ms) // 1000} s"


def _amends(state: OperationState, contract: Contract) -> Answer:
    if state.links.compensated_by:
        return Answer("made", f"by {state.links.compensated_by}")
    if state.intent.completes:
        return Answer("none", f"the whole is compensated: {state.intent.completes}")
    if not contract.compensates:
        return Answer("none", f"{contract.tool} declares no compensation: only a person can correct the effect")
    kind = f"its compensation {'restores the world' if contract.restores else 'explains, and restores nothing'}"
    needs = "" if state.phase == "succeeded" else "; first it must be known whether there is an effect to compensate"
    return Answer("possible", kind + needs)


async def _next_of_contradicted(reader: JournalReader, history: RunHistory, state: OperationState) -> list[str]:
    name = f"{history.run}/{state.step}"
    if not await reader.is_contradicted(history.run, state.step):
        return [to_type("show", history.run)]
    kind = AMENDABLE if stored_contract(history, state).compensates else DISPUTED
    return [to_type("inbox", "--item", name), *answers_with(history.run, kind, state.step)]


def _retry_transaction(history: RunHistory, state: OperationState) -> list[str]:
    """The command that sends it again under its key, where its aborted transaction waits for a person."""
    gone = history.boundaries.called_off(state.step)
    if gone is None or gone.phase != "parked" or state not in sent_again_by(history, gone.stuck):
        return []
    return [to_type("transaction", f"{history.run}/{gone.name}", "--retry", "--by", NAME)]


def _next(
    history: RunHistory, state: OperationState, move: m.Move, pauses: Mapping[str, str], *, driven: bool
) -> list[str]:
    """The commands that help now. `driven`: a process still makes a call of it, so no other one can take the run."""
    run = history.run
    if state.final or state.links.amended:
        return [to_type("show", run)]
    if state.wants_approval:
        return [*answers_with(run, "approval", state.step, shown=state.approval.asked_digest)]
    if state.asks:
        return [*_retry_transaction(history, state), *statements_on(history, state)]
    if history.lifecycle.paused is not None:
        return [to_type("unpause", run)]
    if isinstance(move, m.Wait) and move.why == "trust":
        return ["beforehand doctor"]
    if isinstance(move, m.Wait) and move.why == "paused":
        return [unpausing(paused_with(pauses, state.intent.tool))]
    return [to_type("show", run, "--follow") if driven else to_type("resume", run)]
