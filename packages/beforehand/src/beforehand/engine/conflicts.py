"""Conflicts: other operations, of any run, that have the same effect as a new one.

`find_conflict` looks for them before the first attempt, and `_other_effect` in `model/decision/send_rules.py` decides
what follows. There are four kinds, each with its lookup and its ledger entries below: an earlier use of a business key,
a repeat by a model, a write that a fork would repeat, and a pending effect about the same thing. The race between two
new operations is closed by `taking_posts`, which go into the commit of the attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from beforehand.engine.operation_driver import ClaimHolder, ClaimNote, ClaimState, LedgerFindings, decoded, intent_of
from beforehand.errors import ArgumentError, Unreadable
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import LedgerEntry, Post
from beforehand.journal.record_codec import decode_all
from beforehand.model import records as r
from beforehand.model.canonical.encode import Forms, digest
from beforehand.model.decision.situation import OtherEffect
from beforehand.model.ids import operation_id, reuse_stream, split_operation_id, stream
from beforehand.model.operation import OperationState
from beforehand.model.outcome import PendingEffect
from beforehand.model.pending import LITERAL, literal, literals, thing, thing_stream
from beforehand.model.records import NOTHING
from beforehand.model.run_history import RunHistory
from beforehand.policies import milliseconds

if TYPE_CHECKING:
    from beforehand.engine.active_run.log import RunRecorder
    from beforehand.engine.caches import PendingIndex
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.engine.tool_protocol import ToolCode
    from beforehand.journal.port import JournalReads
    from beforehand.model.contract import Contract
    from beforehand.model.decision.situation import Now


CLAIM_OF: Final = "the claim of "
"""Prefix of the recorded reason for a wait; the name of the operation that holds the business key follows."""


class Claimant(msgspec.Struct, frozen=True):
    """A new operation as the search for conflicts reads it: its process gives it, or a reader of the journal.

    `contract` is that of its tool, None where the app has no such tool. `ancestors` are the runs that its run was
    forked from, as far as they have been read: a later search reads on from there.
    """

    id: str
    operation: OperationState
    contract: Contract | None
    history: RunHistory
    claimed_up: int
    journal: JournalReads
    claim_wait_ms: int
    now: Callable[[], Now]
    ancestors: dict[str, ForkedRun]


def may_conflict(history: RunHistory, index: PendingIndex, operation: OperationState) -> bool:
    """True if a new operation may conflict with another effect: then the ledger is read before it is sent."""
    intent = operation.intent
    return intent.can_conflict or bool(history.lifecycle.forked_from) or intent.tool in index.known


async def find_other_effect(driver: OperationDriver) -> None:
    """Look for effects of others before the first attempt."""
    log, tool = driver.log, driver.tool
    claimant = Claimant(
        id=driver.id,
        operation=driver.operation,
        contract=None if tool is None else tool.contract,
        history=log.history,
        claimed_up=log.claimed_up,
        journal=log.process.journal,
        claim_wait_ms=log.process.settings.claim_wait_ms,
        now=log.now,
        ancestors=_ANCESTORS.setdefault(log, {}) if log.history.lifecycle.forked_from else {},
    )
    driver.found.ledger = await find_conflict(claimant, driver.found.ledger, partial(_things, driver))


async def find_conflict(
    claimant: Claimant, before: LedgerFindings, things: Callable[[], Iterable[str]] = tuple
) -> LedgerFindings:
    """Look for effects that this one conflicts with: the first one becomes `other`. `before` came of the last search.

    These are pending effects about the same thing, the holder of the business key, an earlier write with the same
    `once` parameters, and a write that a fork would repeat. `things` are those that its arguments name; it is called
    only where the intent itself names nothing that is pending.
    """
    intent = claimant.operation.intent
    if claimant.operation.attempts:
        return before
    since = claimant.now().up if before.waiting_since is None else before.waiting_since
    findings = replace(before, other=None, holder=None, things_taken=None, waiting_since=since)
    if claimant.contract is not None and not intent.serves:
        notes = list[LedgerEntry]()
        if intent.thing:
            notes = await claimant.journal.entries(thing_stream(intent.tool, intent.thing))
            findings = replace(findings, things_taken=sum(read(note, PendingNote).state == "taken" for note in notes))
        if not intent.again and (pending := await find_pending(claimant, notes, things)) is not None:
            return replace(findings, other=replace(pending, waited_out=_waited_out(claimant, pending.source, since)))
    if intent.claim:
        findings = await _find_claim(claimant, findings, since)
    if findings.other is None and intent.words:
        findings = await _find_repeat(claimant, findings, since)
    if findings.other is None and claimant.history.lifecycle.forked_from:
        findings = replace(findings, other=await find_ancestor_write(claimant))
    return findings


def _conflict_with(claimant: Claimant, by: Literal["claim", "guard"], holder: ClaimHolder, since: int) -> OtherEffect:
    other = sibling(claimant.history, holder.note.operation)
    return OtherEffect(
        by,
        "succeeded" if holder.note.state == "succeeded" else "pending",
        holder.note.operation,
        waited_out=_waited_out(claimant, holder.note.operation, since),
        deferred=other is not None and other.phase == "awaiting",
    )


def sibling(history: RunHistory, operation: str) -> OperationState | None:
    """The operation of that name, if it is one of this run and not forgotten since its outcome."""
    run, step = split_operation_id(operation)
    return history.operations.get(step) if run == history.run else None


def _waited_out(claimant: Claimant, operation: str, since: int) -> bool:
    """True if a person has to be asked, as another operation has not been settled for too long.

    One of this run goes on by itself or asks a person, or has just ended: waiting for it needs no limit. One that is
    held ends only with its transaction, whose code may be waiting for this one.
    """
    other = sibling(claimant.history, operation)
    outside = split_operation_id(operation)[0] != claimant.history.run or (other is not None and other.phase == "held")
    return outside and _waited_ms(claimant, since) >= claimant.claim_wait_ms


def _waited_ms(claimant: Claimant, since: int) -> int:
    """How long this operation has waited for another one, over all processes; this one began to wait at `since`."""
    operation, now = claimant.operation, claimant.now()
    if operation.waits_for.startswith(CLAIM_OF):
        return now.up - (operation.planned_up if operation.planned_boot == now.boot else claimant.claimed_up)
    return now.up - since


def taking_posts(driver: OperationDriver) -> tuple[Post, ...]:
    """The ledger entries that go with the first attempt."""
    intent, findings = intent_of(driver), driver.found.ledger
    if driver.operation.attempts or not driver.journaled:
        return ()
    posts: list[Post] = []
    if intent.claim and findings.taking is not None:
        note = ClaimNote(driver.id, intent.digest, "taken", intent.generation, intent.outside)
        posts.append(Post(claim_stream(intent.tool, intent.claim), f"{intent.generation}/taken", written(note)))
    if intent.words:  # of several writes that know of equally many earlier ones, the ledger accepts one
        key = f"{driver.id}/taken" if findings.after is None else f"after {findings.after}"
        note = ClaimNote(driver.id, intent.digest, "taken")
        posts.append(Post(repeat_stream(intent.tool, intent.words), key, written(note)))
    if intent.thing:
        alone = intent.again or findings.things_taken is None
        key = f"{driver.id}/taken" if alone else f"after {findings.things_taken}"
        posts.append(Post(thing_stream(intent.tool, intent.thing), key, written(PendingNote(driver.id, "taken"))))
    return tuple(posts)


def outcome_posts(operation: str, settled: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with a final outcome of an operation that was attempted."""
    intent = settled.intent
    if not settled.final or not (settled.attempts or intent.generation):
        return ()
    posts = list(releasing_posts(operation, settled))
    if intent.claim:
        posts.append(claim_ended_post(claim_stream(intent.tool, intent.claim), operation, settled))
    if intent.words:
        posts.append(repeat_ended_post(repeat_stream(intent.tool, intent.words), operation, settled))
    return tuple(posts)


def undone_posts(operation: str, forward: OperationState) -> tuple[Post, ...]:
    """The ledger entries that go with the compensation of an operation: its effect no longer exists."""
    intent, posts = forward.intent, list[Post]()
    if intent.claim:
        note = ClaimNote(operation, intent.digest, "ended", intent.generation, intent.outside)
        posts.append(Post(claim_stream(intent.tool, intent.claim), f"{intent.generation}/undone", written(note)))
    if intent.words:
        note = ClaimNote(operation, intent.digest, "ended")
        posts.append(Post(repeat_stream(intent.tool, intent.words), f"{operation}/undone", written(note)))
    return tuple(posts)


# --- business keys -------------------------------------------------------------------------------------------------
# A business key is a claim in the ledger, so it outlives the runs that wrote it. Its generation is taken by compare-
# and-set in the same commit as the attempt it allows. `outside` numbers the outside key: it advances only if the former
# effect is proven not to exist, so that a released claim is retried under the key that the system already knows.


async def _find_claim(claimant: Claimant, findings: LedgerFindings, since: int) -> LedgerFindings:
    intent = claimant.operation.intent
    entries = await claimant.journal.entries(claim_stream(intent.tool, intent.claim))
    holder = last_holder(entries)
    if holder is not None and holder.stands:
        if holder.note.operation == claimant.id:  # it was taken when the effect was held; a second taking is refused
            return replace(findings, holder=holder, taking=None)
        other = _conflict_with(claimant, "claim", holder, since)
        return replace(findings, holder=holder, other=replace(other, mismatch=holder.note.digest != intent.digest))
    taking = next_claim(holder)
    now_ms = claimant.now().wall
    first_ms = min((entry.at_ms for entry in entries if read(entry, ClaimNote).outside == taking[1]), default=now_ms)
    age_ms = max(0, now_ms - first_ms)  # since the outside key was first used
    return replace(findings, holder=holder, taking=taking, key_age_ms=age_ms)


def claim_stream(tool: str, business_key: str) -> str:
    """The ledger stream of one business key."""
    return stream("claim", tool, business_key)


def last_holder(entries: Iterable[LedgerEntry]) -> ClaimHolder | None:
    """The newest generation of a claim, in its newest state."""
    newest: ClaimHolder | None = None
    for entry in entries:
        note = read(entry, ClaimNote)
        if newest is None or note.generation >= newest.note.generation:
            began = entry.at_ms if newest is None or note.generation > newest.note.generation else newest.since_ms
            newest = ClaimHolder(note, began)
    return newest


def next_claim(holder: ClaimHolder | None) -> tuple[int, int]:
    """The generation to take, and the outside key's number: a new one only after a proven end."""
    if holder is None:
        return 1, 1
    note = holder.note
    return note.generation + 1, note.outside + (0 if note.state == "released" else 1)


def claim_ended_post(stream: str, operation: str, state: OperationState) -> Post:
    """The ledger entry with the outcome of a claimed effect."""
    intent, by = state.intent, _said_by(state)
    released = state.phase == "cancelled" or (state.phase == "failed" and bool(by))
    word: ClaimState = "succeeded" if state.phase == "succeeded" else "released" if released else "ended"
    result = state.settlement.result if word == "succeeded" else NOTHING
    note = ClaimNote(operation, intent.digest, word, intent.generation, intent.outside, result, by)
    return Post(stream, f"{intent.generation}/{word}", written(note))


def _said_by(state: OperationState) -> str:
    """The person who settled it; empty where a rule did."""
    basis = state.settlement.basis
    return basis.name if basis is not None and basis.by == "person" else ""


# --- repeats by a model --------------------------------------------------------------------------------------------
# A call that a model chose is compared with earlier writes of the same tool with the same `once` parameters, in any
# run.


async def _find_repeat(claimant: Claimant, findings: LedgerFindings, since: int) -> LedgerFindings:
    """Find an earlier write that a call of a model repeats. Calls in agent code are deliberate and not checked."""
    intent, contract = claimant.operation.intent, claimant.contract
    once = None if contract is None else contract.once
    if once is None or intent.origin != "model" or once.then == "allow":
        return findings
    entries = await claimant.journal.entries(repeat_stream(intent.tool, intent.words))
    within = milliseconds(once.within) if once.within is not None else None
    findings = replace(findings, after=sum(read(entry, ClaimNote).state == "taken" for entry in entries))
    holder = last_write(entries, claimant.id, within, claimant.now().wall)
    if holder is None or not holder.stands or (holder.note.digest != intent.digest and not once.reworded):
        return findings
    other = _conflict_with(claimant, "guard", holder, since)
    return replace(findings, holder=holder, other=replace(other, then=once.then))


def repeat_stream(tool: str, words: str) -> str:
    """The ledger stream of all writes of a tool with the same `once` parameters, by their digest."""
    return stream("once", tool, words)


def last_write(entries: Iterable[LedgerEntry], but: str, within_ms: int | None, now_ms: int) -> ClaimHolder | None:
    """The newest write with the same parameters, except by the operation `but`, that is not older than `within_ms`."""
    newest: ClaimHolder | None = None
    for entry in entries:
        note = read(entry, ClaimNote)
        if note.operation == but:
            continue
        same = newest is not None and newest.note.operation == note.operation
        newest = ClaimHolder(note, newest.since_ms if newest is not None and same else entry.at_ms)
    if newest is not None and within_ms is not None and now_ms - newest.since_ms > within_ms:
        return None
    return newest


def repeat_ended_post(stream: str, operation: str, state: OperationState) -> Post:
    """The ledger entry with the outcome of a write that is guarded against repeats."""
    word: ClaimState = "succeeded" if state.phase == "succeeded" else "ended"
    result = state.settlement.result if word == "succeeded" else NOTHING
    note = ClaimNote(operation, state.intent.digest, word, result=result, by=_said_by(state))
    return Post(stream, f"{operation}/{word}", written(note))


def reused_post(source: str, operation: str) -> Post:
    """The ledger entry which says that `operation` reused the outcome of `source` and relies on it."""
    return Post(reuse_stream(source), operation, operation.encode())


# --- writes that a fork would repeat -------------------------------------------------------------------------------
# A fork inherits the outcomes of its ancestors up to one record. What they did after it is not repeated without a
# person.


INHERITED: Final = "inherited by a fork"
"""Reason for the reuse of an outcome, in the record with which a fork begins."""
_PAGE: Final = 1000


class ForkedRun:
    """A run that another was forked from, as far as it has been read; it may go on meanwhile."""

    def __init__(self, run: str) -> None:
        self.history = RunHistory(run)
        self.inherited: set[str] = set()
        self._read = 0

    async def read_on(self, journal: JournalReads) -> RunHistory:
        """Read what was recorded since the last call."""
        while rows := await journal.read(self.history.run, self._read, _PAGE):
            for record in decode_all(row.body for row in rows):
                self.history.add(record)
                if isinstance(record, r.OutcomeReused) and record.why == INHERITED:
                    self.inherited.add(record.source)
            self._read = rows[-1].seq
        return self.history


_ANCESTORS: WeakKeyDictionary[RunRecorder, dict[str, ForkedRun]] = WeakKeyDictionary()


async def find_ancestor_write(claimant: Claimant) -> OtherEffect | None:
    """The write of an ancestor that this one would repeat: the same call, or another one of that tool at this step.

    An inherited write is not a repeat, and neither is one that is proven never to have landed.
    """
    run, known = claimant.history.run, claimant.ancestors
    if run not in known:  # as it began: its history does not keep what was delivered to its code meanwhile
        known[run] = ForkedRun(run)
        await known[run].read_on(claimant.journal)
    async for history in _ancestors(claimant):
        for other in history.operations.values():
            source = operation_id(history.run, other.step)
            if source not in known[run].inherited and _repeats(claimant.operation, other):
                return OtherEffect("fork", "succeeded", source, "ask")
    return None


def _repeats(operation: OperationState, other: OperationState) -> bool:
    intent, theirs = operation.intent, other.intent
    if theirs.tool != intent.tool or theirs.completes:
        return False
    same = theirs.digest == intent.digest or other.step == operation.step
    return same and (other.phase == "succeeded" or (not other.final and other.may_have_landed))


async def _ancestors(claimant: Claimant) -> AsyncIterator[RunHistory]:
    """The run that this one was forked from, that run's own ancestor, and so on, each in its present state."""
    run, seen = claimant.history.lifecycle.forked_from, {claimant.history.run}
    while run and run not in seen:
        seen.add(run)
        history = await claimant.ancestors.setdefault(run, ForkedRun(run)).read_on(claimant.journal)
        yield history
        run = history.lifecycle.forked_from


# --- pending effects -----------------------------------------------------------------------------------------------
# A further call about the same thing, in any run, conflicts with what is pending about it. A tool that declares
# `pending=` takes its thing in the commit of its attempt, by compare-and-set, so of two calls at one moment the second
# waits for the first. Any other tool notes a thing in the commit that makes something pending.


BY_CLAIM: Final = ("claim()",)
"""Placeholder for the names of parameters if a handler computes the business key."""


class PendingNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry: an operation took the thing for its attempt, left something pending about it, or has ended.

    `whole` is the operation that this one is a part of, if any. It is released `until` that wall clock at the latest.
    """

    operation: str
    state: Literal["taken", "pending", "over"]
    item: str = ""
    whole: str = ""
    until: int = 0


def fields_of_call(tool: ToolCode, arguments: Mapping[str, Any], both: Forms, secret: bytes) -> dict[str, Any]:
    """The fields of an intent that follow from the arguments of its call. Raises `ArgumentError`."""
    contract, once = tool.contract, tool.contract.once
    return {
        "arguments": r.Raw(both.stored),
        "digest": digest(secret, both.identity),
        "claim": tool.business_key(arguments) if tool.claims else "",
        "words": "" if once is None else thing(secret, once.parameters, arguments),
        "thing": "" if contract.pending is None else thing_of(tool, arguments, secret),
        "expected": tool.expected(arguments) if contract.expects else r.NOTHING,
        "executable": both.executable,
        "title": tool.spec.title_of(both.stored),
    }


def thing_of(tool: ToolCode, arguments: Mapping[str, Any], secret: bytes, about: tuple[str, ...] = ()) -> str:
    """The digest of the thing that a call of this tool is about."""
    names = parameters_of(tool, about)
    return literal(secret, " ".join(about)) if names == LITERAL else _by(tool, names, arguments, secret)


def parameters_of(tool: ToolCode, about: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The parameters by which a call of this tool says what it is about."""
    if about:
        return about if set(about) <= tool.spec.types.keys() else LITERAL
    contract = tool.contract
    declared = contract.pending is not None and contract.pending.about
    return BY_CLAIM if tool.claims and not (declared or contract.claim) else tool.subject.names


def _by(tool: ToolCode, names: tuple[str, ...], arguments: Mapping[str, Any], secret: bytes) -> str:
    if names == BY_CLAIM:
        return literal(secret, tool.business_key(arguments))
    return thing(secret, names, arguments)


async def find_pending(
    claimant: Claimant, notes: Iterable[LedgerEntry], things: Callable[[], Iterable[str]]
) -> OtherEffect | None:
    """The pending effect of another operation about the thing of a new call; None if there is none.

    `notes` are those about the thing that its intent names.
    """
    intent = claimant.operation.intent
    found = await _still_pending(claimant, notes)
    if found is not None:
        return found
    for about in things():
        if about != intent.thing:
            found = await _still_pending(claimant, await claimant.journal.entries(thing_stream(intent.tool, about)))
        if found is not None:
            break
    return found


def _things(driver: OperationDriver) -> list[str]:
    """Every thing that a call is about, by the ways in which things of its tool were named."""
    engine, tool = driver.log.process, driver.tool
    if tool is None:
        return []
    secret, ways = engine.identity.secret, engine.pending_index.of(tool.name)
    if not ways:
        return []
    try:
        arguments = decoded(driver)
    except ArgumentError:
        return []  # it cannot be sent from here either
    found: list[str] = []
    for names in ways:
        if names == LITERAL:
            found.extend(literal(secret, text) for text in literals(arguments, tool.subject.free_text))
        elif names != BY_CLAIM or tool.claims:
            found.append(_by(tool, names, arguments, secret))
    return found


async def _still_pending(claimant: Claimant, entries: Iterable[LedgerEntry]) -> OtherEffect | None:
    """The conflict with the notes that are not over. Notes of a run that was cancelled or undone are released."""
    open_notes: dict[str, tuple[PendingNote, int]] = {}
    for entry in entries:
        note = read(entry, PendingNote)
        if note.state == "over":
            open_notes.pop(note.operation, None)
        else:
            open_notes[note.operation] = note, entry.at_ms
    now_ms, released = claimant.now().wall, dict[str, bool]()
    left: list[tuple[PendingNote, int]] = []
    for note, since_ms in open_notes.values():
        whole = note.whole or note.operation
        if whole == claimant.id or (note.until and note.until <= now_ms):
            continue
        run, _ = split_operation_id(whole)
        if run not in released:
            released[run] = await _called_off(claimant, run)
        if not released[run]:
            left.append((note, since_ms))
    if not left:
        return None
    first, since_ms = min(left, key=lambda one: (one[0].state == "taken", one[1]))
    source = first.whole or first.operation
    if first.state == "taken":
        return OtherEffect("pending", "pending", source)
    items = tuple(note.item for note, _ in left if note.whole == source)
    said = "" if first.whole else first.item
    return OtherEffect(
        "pending", "pending", source, deferred=True, pending_effect=PendingEffect(source, items, since_ms, said)
    )


async def _called_off(claimant: Claimant, run: str) -> bool:
    """True if a run was cancelled or undone: operations no longer wait for it."""
    if run == claimant.history.run:
        return False
    journal = claimant.journal
    rows = await journal.runs(run=run)
    if not rows or not (rows[0].status == "stopped" or (rows[0].status == "completed" and rows[0].reason)):
        return bool(rows) and rows[0].status == "undone"
    with suppress(Unreadable):  # that is a problem of the other run
        lifecycle = (await ForkedRun(run).read_on(journal)).lifecycle
        return lifecycle.undone is not None or (
            lifecycle.stopped is not None and lifecycle.stopped.reason == "cancelled"
        )
    return False


async def pending_thing(driver: OperationDriver, about: tuple[str, ...] = ()) -> str:
    """The thing about which something of this call is pending now. The parameters that name it are durable first.

    Empty if that is no longer known: a report of a tool after its effect never makes the effect doubtful.
    """
    tool, engine = driver.tool, driver.log.process
    if tool is None:
        return ""
    try:
        found = thing_of(tool, decoded(driver), engine.identity.secret, about)
    except (ArgumentError, ValueError, TypeError):
        return ""
    await engine.pending_index.add(engine.journal, tool.name, parameters_of(tool, about))
    return found


def pending_post(tool: str, about: str, note: PendingNote, number: int) -> tuple[Post, ...]:
    """The entry that says that something is pending about a thing, since attempt `number` of its operation."""
    return (Post(thing_stream(tool, about), f"{note.operation}/{number}/pending", written(note)),) if about else ()


def releasing_posts(operation: str, settled: OperationState) -> tuple[Post, ...]:
    """The entries that release the things an operation took or left pending, in the commit of its outcome."""
    intent = settled.intent
    streams = dict.fromkeys(
        thing_stream(intent.tool, about) for about in (intent.thing, settled.deferral.thing) if about
    )
    return tuple(Post(one, f"{operation}/over", written(PendingNote(operation, "over"))) for one in streams)
