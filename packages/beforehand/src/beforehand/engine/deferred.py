"""Deferred outcomes: operations that were accepted and are answered later, from outside.

The answer comes under a key. Two ledger streams meet there: `arrived/KEY` keeps everything that came, and
`awaited/KEY` names the one operation that waits for it. The second writer finds the entry of the first, so an
answer may come before our own response, in any order, and as often as its sender likes. Each answer that says how
the operation ended becomes one command to the run: a report about the attempt. The run decides what it proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.engine.commands import take_commands
from beforehand.engine.conflicts import PendingNote, pending_post, pending_thing
from beforehand.engine.exceptions.call_end import clean
from beforehand.engine.late_reports import file_late, late_report
from beforehand.engine.operation_driver import OperationDriver, operation_key
from beforehand.errors import Deferred, LeaseLost, LedgerTaken
from beforehand.journal.entry_codec import read, read_taken, readable, written
from beforehand.journal.port import Journal, LedgerEntry, Post, Posts
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.ids import operation_id, split_operation_id, stream
from beforehand.model.run_history import PENDING
from beforehand.policies import milliseconds

if TYPE_CHECKING:
    from beforehand.engine.operation_driver import CallResult
    from beforehand.model.contract import Contract
    from beforehand.model.operation import OperationState


_AWAITING: Final = "owner"


class ArrivedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message with an awaited answer.

    `id` is the sender's name for the message: the same id is the same message, however often it arrives. The status
    `pending` means that nothing is final yet. `result` is what the tool would have returned, as JSON. `sender` is the
    webhook sender whose secret signed the message; without one, `source` is the person who brought it. `tools` are the
    tools whose operations it may settle (empty: all).
    """

    id: str
    status: Literal["succeeded", "failed", "pending"] = "succeeded"
    result: r.Raw = r.NOTHING
    why: str = ""
    code: str = ""
    source: str = ""
    sender: str = ""
    tools: tuple[str, ...] = ()

    @property
    def person(self) -> str:
        """The person who brought the message; empty where a sender has signed it, or a program brought it."""
        return "" if self.sender else self.source

    @property
    def entry(self) -> str:
        """The ledger key of the message. One sender can neither take an id of another nor block it.

        The tools are part of the key, so a message that arrived under a wrong binding is accepted under the right one.
        """
        return f"{self.sender}:{','.join(self.tools)}/{self.id}" if self.sender else self.id

    def refusal(self, owner: AwaitingOperation) -> str:
        """The reason why the message must not settle the operation of `owner`; empty if it may."""
        if not self.tools or owner.tool in self.tools:
            return ""
        return f"sender {self.sender} is bound to {', '.join(self.tools)}, and {owner.operation} calls {owner.tool}"


class AwaitingOperation(msgspec.Struct, frozen=True):
    """The operation and the attempt that wait under a key, and the tool that the operation calls."""

    operation: str
    number: int
    tool: str = ""


def arrived_stream(key: str) -> str:
    """The ledger stream of everything that came under this key."""
    return stream("arrived", key)


def awaited_stream(key: str) -> str:
    """The ledger stream that names the operation that waits for this key."""
    return stream("awaited", key)


async def defer(driver: OperationDriver, number: int, deferred: Deferred, answer: CallResult) -> None:
    """Record that the answer comes later, and under which key. One key belongs to one operation only."""
    log, stamp = driver.log, driver.log.stamp()
    key = clean(deferred.key) or operation_key(driver)
    record = r.OperationDeferred(
        step=driver.step,
        number=number,
        until=stamp["at"] + milliseconds(deferred.within),
        evidence=clean(deferred.message),
        key=key,
        key_read=answer.key_read,
        cost=answer.cost,
        every_ms=0 if deferred.every is None else milliseconds(deferred.every),
        facts=() if answer.reported is None else answer.reported.facts,
        **stamp,
    )
    about = await pending_thing(driver)
    record = replace(record, thing=about)
    note = PendingNote(driver.id, "pending", record.evidence, until=record.until)
    noted = pending_post(driver.operation.intent.tool, about, note, number)
    owner = AwaitingOperation(driver.id, number, driver.operation.intent.tool)
    crash = log.process.environment.crash
    crash.reached("before_outcome")
    try:
        await driver.record(record, posts=(Post(awaited_stream(key), _AWAITING, written(owner)), *noted))
    except LedgerTaken as taken:
        await driver.record(_without_the_key(record, driver.id, taken), posts=noted)
    except LeaseLost:
        end = r.End("ambiguous", why=f"accepted, answer later: {record.evidence}", key_read=answer.key_read)
        await file_late(log.process, log.run, late_report(driver.operation, number, end, log.stamp()))
        raise
    crash.reached("after_outcome")
    told_unknown = driver.step in log.history.delivered.told_unknown  # of an earlier attempt without a result
    if driver.operation.intent.origin == "model" and not told_unknown:  # the model goes on; the answer comes separately
        await log.append(r.Delivered(step=driver.step, told=PENDING, detail=record.evidence, **log.stamp()))
        driver.settled()  # code that waits for it, while another task drives, goes on
    if not answer.key_read:
        log.process.report_unread_key(driver.operation.intent.tool)


def _without_the_key(record: r.OperationDeferred, operation: str, taken: LedgerTaken) -> r.OperationDeferred:
    """The record if the key is taken: taken by an earlier attempt of ours it still serves, else it proves nothing."""
    holder = read_taken(taken, AwaitingOperation).operation
    if holder == operation:
        return record
    return replace(record, key="", evidence=f"{record.evidence} (an answer under {record.key} belongs to {holder})")


async def collect_answers(driver: OperationDriver) -> None:
    """Turn the messages for an operation that awaits its answer into commands, and apply them."""
    operation, log = driver.operation, driver.log
    key = operation.deferral.key if operation.phase == "awaiting" else ""
    if key and await forward(log.process.journal, key):
        await take_commands(driver.active)


async def owner_of(journal: Journal, key: str) -> AwaitingOperation | None:
    """The operation that waits for `key`; None if there is none yet."""
    owners = await journal.entries(awaited_stream(key))
    return read(owners[0], AwaitingOperation) if owners else None


async def forward(journal: Journal, key: str) -> str:
    """Send the run that waits for `key` a command for each final message that came for it, once.

    All go in one commit: once the first is applied, nothing waits for the key, and no process would look for others.
    Return the operation that waits; empty if no message came, or no operation waits yet: messages are kept.
    """
    while True:
        arrived = await journal.entries(arrived_stream(key))
        owner = await owner_of(journal, key) if arrived else None
        if owner is None:
            return ""
        came = await readable(journal, arrived, ArrivedAnswer)
        orders = [order for entry, one in came if (order := _answer_command(owner, key, entry, one)) is not None]
        if len(orders) == 1:
            await journal.commit(orders[0])
            return owner.operation
        run = split_operation_id(owner.operation)[0]
        known = {entry.key for entry in await journal.entries(command_stream(run))} if orders else set[str]()
        missing = tuple(order for order in orders if order.key not in known)
        try:
            if missing:
                await journal.commit(Posts(missing))
        except LedgerTaken:
            continue  # another process sent one of them meanwhile
        return owner.operation


def _answer_command(owner: AwaitingOperation, key: str, entry: LedgerEntry, arrival: ArrivedAnswer) -> Post | None:
    """The command for the operation that waits: how its attempt ended, if the message says so."""
    if arrival.status == "pending":
        return None
    run, step = split_operation_id(owner.operation)
    why = arrival.why or f"the answer {arrival.id} came"
    end = r.End("returned" if arrival.status == "succeeded" else "rejected", why, arrival.code, arrival.result)
    end = replace(end, source=arrival.source)
    report = r.LateReport(step=step, number=owner.number, end=end, by=arrival.person)
    refused = arrival.refusal(owner)  # a message that came early is checked here: its operation was not known then
    command = Command("late", arrival.source, f"{arrival.id} under {key}", None if refused else report, refused=refused)
    return Post(command_stream(run), f"{arrived_stream(key)}/{entry.id}", written(command))


def what_is_awaited(driver: OperationDriver) -> str:
    """The awaited answer, described for a person."""
    end = driver.operation.attempts[-1].end
    return f"{driver.id}: {end.why}" if end is not None else driver.id


# --- partial success -----------------------------------------------------------------------------------------------
# An effect is done, and parts of it end later. Each part is an operation of its own that serves the whole, begun in the
# commit that settles the whole: its attempt is the one that was made, and from its first moment it awaits its answer as
# a deferred outcome does. It is never sent.


def partial_items(contract: Contract, operation: OperationState, proof: r.End | None) -> tuple[r.PendingItem, ...]:
    """The pending parts of a success: those that the proving call reported, and those that a reading found missing.

    A part that only a reading names is looked for as long as readings go on. A part has no parts of its own.
    """
    if operation.intent.completes:
        return ()
    pending = proof.pending if proof is not None else ()
    declared = contract.pending
    if declared is not None and declared.item and all(item.name != declared.item for item in pending):
        pending = (*pending, r.PendingItem(declared.item, "", milliseconds(declared.within)))
    if not operation.settlement.missing:
        return pending
    known = {item.name for item in pending}
    named = [clean(name) for name in operation.settlement.missing]
    return (
        *pending,
        *(
            r.PendingItem(name, "", contract.verify_deadline_ms, contract.verify_every_ms)
            for name in dict.fromkeys(named)
            if name not in known
        ),
    )


async def record_with_parts(
    driver: OperationDriver,
    records: tuple[r.OperationRecord, ...],
    posts: tuple[Post, ...],
    items: tuple[r.PendingItem, ...],
) -> list[str]:
    """Record the outcome and every part in one commit; return the steps of the parts, which have to be driven.

    A key that another operation waits for already is not taken: that part waits for its deadline.
    """
    free = _with_keys(driver, items)
    things = {item.about: await pending_thing(driver, item.about) for item in free}
    while True:
        begun, keys = _part_records(driver, free, things)
        try:
            await driver.record(*records, *begun, posts=(*posts, *keys))
        except LedgerTaken as taken:
            if taken.stream not in {awaited_stream(item.key) for item in free}:
                raise
            free = [
                msgspec.structs.replace(item, key="") if awaited_stream(item.key) == taken.stream else item
                for item in free
            ]
        else:
            break
    return [record.step for record in begun if isinstance(record, r.OperationDeferred)]


def _with_keys(driver: OperationDriver, items: tuple[r.PendingItem, ...]) -> list[r.PendingItem]:
    """The items with a key each; of two that name the same one, the first has it."""
    seen: set[str] = set()
    named: list[r.PendingItem] = []
    for item in items:
        own = f"{operation_key(driver)}.{item.name}"
        key = item.key if item.key and item.key not in seen else own
        seen.add(key)
        named.append(msgspec.structs.replace(item, key=key))
    return named


def _part_records(
    driver: OperationDriver, items: list[r.PendingItem], things: Mapping[tuple[str, ...], str]
) -> tuple[list[r.OperationRecord], list[Post]]:
    """The records that make each part an operation awaiting its answer, and the ledger entries for those answers."""
    whole, log = driver.operation.intent, driver.log
    records: list[r.OperationRecord] = []
    posts: list[Post] = []
    for place, item in enumerate(items, 1):
        step, stamp = f"{driver.step}/part#{place}", log.stamp()
        intent = msgspec.structs.replace(
            whole, claim="", generation=0, outside=0, words="", observed=r.NOTHING, expected=r.NOTHING, hold="",
            compensates="", confirms="", thing="", again="", completes=driver.step, item=item.name,
            title="", price="",
        )  # fmt: skip
        until = stamp["at"] + item.within_ms
        records.append(r.AttemptStarted(step=step, token=log.journal_log.lease.token, intent=intent, **stamp))
        records.append(
            r.OperationDeferred(
                step=step, number=1, until=until, evidence=item.name, key=item.key, every_ms=item.every_ms,
                thing=things[item.about], **stamp,
            )
        )  # fmt: skip
        note = PendingNote(operation_id(log.run, step), "pending", item.name, driver.id, until)
        posts.extend(pending_post(whole.tool, things[item.about], note, 1))
        if item.key:
            owner = AwaitingOperation(operation_id(log.run, step), 1, intent.tool)
            posts.append(Post(awaited_stream(item.key), "owner", written(owner)))
    return records, posts
