"""Pending effects in the ledger: a further call about the same thing, in any run, conflicts with them.

A tool that declares `pending=` takes its thing in the commit of its attempt, by compare-and-set, so of two calls at one
moment the second waits for the first. Any other tool notes a thing in the commit that makes something pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from holdfast.engine.operation_driver import decoded
from holdfast.errors import ArgumentError
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import LedgerEntry, Post
from holdfast.model.decision.situation import Elsewhere
from holdfast.model.ids import operation_id, split_operation_id
from holdfast.model.outcome import Met
from holdfast.model.pending import LITERAL, literal, literals, names_of, thing, thing_stream

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.engine.tool_protocol import ToolCode
    from holdfast.model.operation import OperationState


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


def thing_of(tool: ToolCode, arguments: Mapping[str, Any], secret: bytes, about: tuple[str, ...] = ()) -> str:
    """The digest of the thing that a call of this tool is about."""
    names = parameters_of(tool, about)
    if names == LITERAL:
        return literal(secret, " ".join(about))
    return _by(tool, names, arguments, secret)


def parameters_of(tool: ToolCode, about: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The parameters by which a call of this tool says what it is about."""
    contract = tool.contract
    declared = contract.pending is not None and contract.pending.about
    if not (about or declared or contract.claim) and tool.claims:
        return BY_CLAIM
    return names_of(contract, tool.parameters, about)


def _by(tool: ToolCode, names: tuple[str, ...], arguments: Mapping[str, Any], secret: bytes) -> str:
    if names == BY_CLAIM:
        return literal(secret, tool.business_key(arguments))
    return thing(secret, names, arguments)


# --- conflicts of a new call -------------------------------------------------------------------------------


async def find_pending(driver: OperationDriver) -> Elsewhere | None:
    """The pending effect of another operation about the thing of a new call; None if there is none."""
    intent, tool, journal = driver.operation.intent, driver.tool, driver.log.process.journal
    driver.found.things_taken = None
    if tool is None or intent.serves or (intent.again and not intent.thing):
        return None
    found: Elsewhere | None = None
    if intent.thing:
        entries = await journal.entries(thing_stream(intent.tool, intent.thing))
        driver.found.things_taken = sum(read(entry, PendingNote).state == "taken" for entry in entries)
        found = None if intent.again else await _still_pending(driver, entries)
    if found is not None or intent.again:
        return found
    for about in _things(driver, tool):
        if about != intent.thing:
            found = await _still_pending(driver, await journal.entries(thing_stream(intent.tool, about)))
        if found is not None:
            break
    return found


def _things(driver: OperationDriver, tool: ToolCode) -> list[str]:
    """Every thing that a call is about, by the ways in which things of its tool were named."""
    engine = driver.log.process
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
            found.extend(literal(secret, text) for text in literals(arguments))
        elif names != BY_CLAIM or tool.claims:
            found.append(_by(tool, names, arguments, secret))
    return found


async def _still_pending(driver: OperationDriver, entries: Iterable[LedgerEntry]) -> Elsewhere | None:
    """The conflict with the notes that are not over. Notes of a run that was cancelled or undone are released."""
    open_notes: dict[str, tuple[PendingNote, int]] = {}
    for entry in entries:
        note = read(entry, PendingNote)
        if note.state == "over":
            open_notes.pop(note.operation, None)
        else:
            open_notes[note.operation] = note, entry.at_ms
    now_ms, released = driver.log.process.environment.clock.wall_ms(), dict[str, bool]()
    left: list[tuple[PendingNote, int]] = []
    for note, since_ms in open_notes.values():
        whole = note.whole or note.operation
        if whole == driver.id or (note.until and note.until <= now_ms):
            continue
        run, _ = split_operation_id(whole)
        if run not in released:
            released[run] = await _called_off(driver, run)
        if not released[run]:
            left.append((note, since_ms))
    if not left:
        return None
    first, since_ms = min(left, key=lambda one: (one[0].state == "taken", one[1]))
    source = first.whole or first.operation
    if first.state == "taken":
        return Elsewhere("pending", "pending", source)
    items = tuple(note.item for note, _ in left if note.whole == source)
    said = "" if first.whole else first.item
    return Elsewhere("pending", "pending", source, deferred=True, met=Met(source, items, since_ms, said))


async def _called_off(driver: OperationDriver, run: str) -> bool:
    """True if a run was cancelled or undone: operations no longer wait for it."""
    if run == driver.log.run:
        return False
    for row in await driver.log.process.journal.runs(run=run):
        return row.status == "undone" or (row.status == "stopped" and row.reason.startswith("cancelled"))
    return False


# --- ledger entries ----------------------------------------------------------------------------------------


def taking_post(driver: OperationDriver) -> tuple[Post, ...]:
    """The entry that takes the thing of a declared tool, in the commit of its first attempt."""
    intent = driver.operation.intent
    if not intent.thing:
        return ()
    taken = driver.found.things_taken
    key = f"{driver.id}/taken" if intent.again or taken is None else f"after {taken}"
    return (Post(thing_stream(intent.tool, intent.thing), key, written(PendingNote(driver.id, "taken"))),)


async def pending_thing(driver: OperationDriver, about: tuple[str, ...] = ()) -> str:
    """The thing about which something of this call is pending now; by which parameters it is named is durable first.

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


def part_note(driver: OperationDriver, step: str, item: str, until: int) -> PendingNote:
    """The note of a part that is pending."""
    return PendingNote(operation_id(driver.log.run, step), "pending", item, driver.id, until)
