"""Deferred outcomes: what was accepted and is answered later, by whoever brings the answer.

The answer comes under a key. Two ledger streams meet there: `arrived/KEY` keeps everything that came, and
`awaited/KEY` names the one operation that waits for it. Whoever is second finds what the first has left, so an
answer may come before our own response, in any order, and as often as its sender likes. Each one that says how
it ended becomes one order to the run, as a report about the attempt; what it proves is decided there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.engine.commands import Command, command_stream, take_commands
from holdfast.engine.ends import clean
from holdfast.engine.pendings import Note, pending_post, pending_thing
from holdfast.errors import Deferred, LeaseLost, LedgerTaken
from holdfast.journal.bodies import read, read_taken, readable, written
from holdfast.journal.port import Entry, Journal, Post
from holdfast.model import records as r
from holdfast.model.ids import split_operation_id, stream
from holdfast.model.run_history import PENDING
from holdfast.policies import milliseconds

if TYPE_CHECKING:
    from holdfast.engine.calls import Answer
    from holdfast.engine.flight import Flight

_OWNER: Final = "owner"
DELIVERIES: Final = "deliveries"
"""The ledger stream in which every delivery is announced; whoever looks round finishes what was cut short."""


class Arrival(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message about something awaited.

    `id` is its sender's name for it: the same id is the same message, however often it comes. `pending` says
    that nothing is final yet. `result` is what the tool would have returned, as JSON. `sender` is the webhook sender
    whose secret signed the message, and `tools` the only tools whose operations it may settle; empty: all.
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
    def entry(self) -> str:
        """The ledger key of the message. One sender can neither take an id of another nor block it.

        The tools are part of it: a message that came under a wrong binding counts when it comes under the right one.
        """
        return f"{self.sender}:{','.join(self.tools)}/{self.id}" if self.sender else self.id

    def refusal(self, owner: Owner) -> str:
        """Why the message must not settle the operation of `owner`; empty where it may."""
        if not self.tools or owner.tool in self.tools:
            return ""
        return f"sender {self.sender} is bound to {', '.join(self.tools)}, and {owner.operation} calls {owner.tool}"


class Delivering(msgspec.Struct, frozen=True, omit_defaults=True):
    """Announces a message before it is stored, so that a deliverer that dies in between leaves a trace.

    With a `run` it is a report that lies among the orders of that run, which may have ended.
    """

    key: str
    id: str
    run: str = ""


class Owner(msgspec.Struct, frozen=True):
    """The operation and the attempt that wait under a key, and the tool that the operation calls."""

    operation: str
    number: int
    tool: str = ""


def arrived_stream(key: str) -> str:
    """The ledger stream of everything that came under this key."""
    return stream("arrived", key)


def awaited_stream(key: str) -> str:
    """The ledger stream that names who waits for this key."""
    return stream("awaited", key)


async def defer(flight: Flight, number: int, said: Deferred, answer: Answer) -> None:
    """Record that the answer comes later, and under which key. One key stands for one operation only."""
    instance, stamp = flight.instance, flight.instance.stamp()
    key = clean(said.key) or flight.key
    record = r.OperationDeferred(
        step=flight.step,
        number=number,
        until=stamp["at"] + milliseconds(said.within),
        evidence=clean(said.message),
        key=key,
        key_read=answer.key_read,
        cost=answer.cost,
        every_ms=0 if said.every is None else milliseconds(said.every),
        facts=() if answer.said is None else answer.said.facts,
        **stamp,
    )
    about = await pending_thing(flight)
    record = replace(record, thing=about)
    note = Note(flight.id, "pending", record.evidence, until=record.until)
    noted = pending_post(flight.operation.intent.tool, about, note, number)
    owner = Owner(flight.id, number, flight.operation.intent.tool)
    crash = instance.engine.seams.crash
    crash.reached("before_outcome")
    try:
        await flight.note(record, posts=(Post(awaited_stream(key), _OWNER, written(owner)), *noted))
    except LedgerTaken as taken:
        await flight.note(_without_the_key(record, flight.id, taken), posts=noted)
    except LeaseLost:
        end = r.End("ambiguous", why=f"accepted, answer later: {record.evidence}", key_read=answer.key_read)
        await instance.engine.file_late(
            instance.run, r.LateReport(step=flight.step, number=number, end=end, **instance.stamp())
        )
        raise
    crash.reached("after_outcome")
    told = flight.step in instance.history.told_unknown  # of an earlier attempt, which nothing has come of
    if flight.operation.intent.origin == "model" and not told:  # it goes on, and the answer finds its own way
        await instance.append(r.Delivered(step=flight.step, told=PENDING, detail=record.evidence, **instance.stamp()))
    if not answer.key_read:
        instance.engine.report_unread_key(flight.operation.intent.tool)


def _without_the_key(record: r.OperationDeferred, operation: str, taken: LedgerTaken) -> r.OperationDeferred:
    """The record where the key is taken: by an earlier attempt of ours it serves us still, else it proves nothing."""
    holder = read_taken(taken, Owner).operation
    if holder == operation:
        return record
    return replace(record, key="", evidence=f"{record.evidence} (an answer under {record.key} belongs to {holder})")


async def collect(flight: Flight) -> None:
    """Turn what came for an operation that awaits its answer into orders, and apply them."""
    operation, instance = flight.operation, flight.instance
    key = operation.answer_key if operation.phase == "awaiting" else ""
    if key and await forward(instance.engine.journal, key):
        await take_commands(instance)


async def owner_of(journal: Journal, key: str) -> Owner | None:
    """The operation that waits for `key`; None while none does."""
    owners = await journal.entries(awaited_stream(key))
    return read(owners[0], Owner) if owners else None


async def forward(journal: Journal, key: str) -> str:
    """Order the run that waits for `key` to look at everything final that came for it, each message once.

    The operation that waits; empty where nothing came, or where nobody waits yet: what came is kept.
    """
    arrived = await journal.entries(arrived_stream(key))
    owner = await owner_of(journal, key) if arrived else None
    if owner is None:
        return ""
    for entry, arrival in await readable(journal, arrived, Arrival):
        if (order := _order(owner, key, entry, arrival)) is not None:
            await journal.post(order)
    return owner.operation


def _order(owner: Owner, key: str, entry: Entry, arrival: Arrival) -> Post | None:
    """What a message means for the operation that waits: how its attempt ended, if it says so."""
    if arrival.status == "pending":
        return None
    run, step = split_operation_id(owner.operation)
    why = arrival.why or f"the answer {arrival.id} came"
    end = r.End("returned" if arrival.status == "succeeded" else "rejected", why, arrival.code, arrival.result)
    if arrival.sender:
        end = replace(end, source=arrival.source)
    report = r.LateReport(step=step, number=owner.number, end=end)
    refused = arrival.refusal(owner)  # a message that came early is checked here: its operation was not known then
    command = Command("late", arrival.source, f"{arrival.id} under {key}", None if refused else report, refused=refused)
    return Post(command_stream(run), f"{arrived_stream(key)}/{entry.id}", written(command))


def how_to_answer(flight: Flight) -> str:
    """What is awaited, for a person."""
    operation = flight.operation
    said = operation.attempts[-1].end
    told = f"{flight.id}: {said.why}" if said is not None else flight.id
    return f"{told} (holdfast deliver {operation.answer_key})" if operation.answer_key else told
