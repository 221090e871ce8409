"""Orders to a run: whoever can take the lease of an idle one applies them, and the owner of a busy one is told."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from holdfast.control.seeded_cases import end_planted, note_on
from holdfast.engine.active_run.run import Stamp
from holdfast.engine.approvals import AnswerContext
from holdfast.engine.commands import command_stream, posts_for, records_for, take_commands, waits_for_code
from holdfast.engine.engine import Engine
from holdfast.engine.leases import notify_owner
from holdfast.engine.loading import load
from holdfast.engine.suspension import stopped_change
from holdfast.errors import JournalError, LeaseLost
from holdfast.inspect.reader import waits_after
from holdfast.journal.codec import encode
from holdfast.journal.log import RunLog, genesis
from holdfast.journal.port import Claimed, Entry, Post, RunChange, RunRow, Worker
from holdfast.model.records import CommandApplied
from holdfast.model.run_history import RunHistory
from holdfast.model.system import is_planted
from holdfast.model.transaction import WHOLE_RUN

LEFT: Final = "it is left for the process that drives the run, which has not taken it yet"


class Applied(msgspec.Struct, frozen=True):
    """What became of an order: applied at once, or left for the process that drives the run (`elsewhere`).

    `lacks` is the tool whose code has to check the order first, where it is not here. `alert`: the note is what whoever
    gave it has to know, such as that it was refused after all.
    """

    run: str
    at_once: bool
    note: str = ""
    lacks: str = ""
    alert: bool = False
    elsewhere: bool = False
    owner: Worker | None = None  # the process that has to take it, where it was left for one


class Sink(Protocol):
    """Where words go: into the ledger and to their run."""

    async def post(self, post: Post, /) -> Entry:
        """Put a word into the ledger."""
        ...

    async def post_all(self, posts: Sequence[Post], /) -> None:
        """Put all these words there, or none of them. Raises `LedgerTaken` where somebody was faster with one."""
        ...

    async def apply(self, run: str, answered: str, /) -> Applied:
        """Let the run have what waits for it; `answered` is a step of which nobody is asked any more."""
        ...


class AtOnce:
    """Each word is in the ledger when it is said, and its run has it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def post(self, post: Post) -> Entry:
        """Durable on return."""
        return await self._engine.journal.post(post)

    async def post_all(self, posts: Sequence[Post]) -> None:
        """In one commit, durable on return."""
        await self._engine.journal.post_all(tuple(posts))

    async def apply(self, run: str, answered: str) -> Applied:
        """Applied here, or by whoever drives the run."""
        return await apply_orders(self._engine, run, answered)


class Collected:
    """Keeps the words, each judged as if it were said alone, and lets no run have them yet."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.posts: list[Post] = []
        self.runs: dict[str, str] = {}

    async def post(self, post: Post) -> Entry:
        """Not in the ledger yet."""
        self.posts.append(post)
        return Entry(0, post.stream, post.key, post.body, self._now_ms)

    async def post_all(self, posts: Sequence[Post]) -> None:
        """Kept with the others."""
        self.posts.extend(posts)

    async def apply(self, run: str, answered: str) -> Applied:
        """Only noted."""
        self.runs[run] = answered or self.runs.get(run, "")
        return Applied(run, at_once=False)


async def apply_orders(engine: Engine, run: str, answered: str = "") -> Applied:
    """Apply what waits for a run. Whoever takes the lease of an idle one does; here, that may be us.

    An owner that drives it now is told: it applies the order, or lets the run be driven again. `answered` is a step
    of which nobody is asked any more.
    """
    while True:
        instance = engine.instances.get(run)
        ours = instance is not None and instance.sealed is None
        if instance is not None and ours:
            with contextlib.suppress(LeaseLost):  # the present owner of the run is notified below
                await take_commands(instance)
        found = await engine.leases.claim(run)
        if isinstance(found, Claimed):
            lacking, refused = await _apply_claimed(engine, found, answered)
            if is_planted(found.row.agent):
                refused = await note_on(engine, run)
            note = refused or (f"it is checked and applied where the code of {lacking} is" if lacking else "")
            return Applied(run, at_once=not lacking, note=note, lacks=lacking, alert=bool(refused))
        if found is None or await notify_owner(engine.journal, run, found.row.token):
            if ours or found is None:
                return Applied(run, at_once=ours, elsewhere=not ours)
            return Applied(run, at_once=False, note=LEFT, elsewhere=True, owner=found.owner)


async def _apply_claimed(engine: Engine, claimed: Claimed, answered: str) -> tuple[str, str]:
    try:
        return await _apply_to(engine, claimed, answered)
    except JournalError:
        engine.leases.give_back(claimed.row)
        raise
    finally:
        engine.leases.let_go(claimed.lease.run)


async def _apply_to(engine: Engine, claimed: Claimed, answered: str) -> tuple[str, str]:
    """Apply the orders in turn, up to one that has to wait for a tool's code: its name, and what was refused."""
    history, log = await _open(engine, claimed)
    if is_planted(claimed.row.agent):
        await end_planted(engine, claimed.row, history, log)
        return "", ""
    entries = await engine.journal.entries(command_stream(claimed.lease.run), history.entry_seen)
    codes = AnswerContext(engine.tools, engine.identity.secret)
    bodies: list[bytes] = []
    posts: list[Post] = []
    refused: list[str] = []
    lacking = ""
    for entry in entries:
        if lacking := waits_for_code(history, entry, engine.tools):
            break
        stamp = Stamp(at=engine.environment.clock.wall_ms(), up=engine.journal.now().ms)
        records = records_for(history, entry, stamp, codes)
        posts.extend(posts_for(history, records))
        for record in records:
            history.add(record)
            bodies.append(encode(record))
            if isinstance(record, CommandApplied) and record.refused:
                refused.append(f"what {record.by} said was {record.told}" if record.by else record.told)
    await log.append(bodies, _after(engine, claimed.row, history, answered), tuple(posts))
    return lacking, "; ".join(refused)


def _after(engine: Engine, row: RunRow, history: RunHistory, answered: str) -> RunChange:
    """How the listing stands once the orders are in: a waiting run is due now, an ended one stays."""
    undone, waits = WHOLE_RUN in history.transactions and history.status != "undone", row.waits
    if row.status not in {"suspended", "running"} and not undone:
        if row.status == "stopped" and history.status == "running":
            return RunChange("running", release=True)
        if history.status == "stopped" and history.stopped is not None:
            return stopped_change(history.stopped, row.agent, row.due_ms)
        return RunChange(row.status, row.reason, row.due_ms, waits, release=True)
    waits = waits_after(row, history, answered)
    if history.paused is not None and not undone:
        return RunChange("suspended", f"paused by {history.paused.by}", None, waits, release=True)
    return RunChange("suspended", row.reason, engine.environment.clock.wall_ms(), waits, release=True)


async def _open(engine: Engine, claimed: Claimed) -> tuple[RunHistory, RunLog]:
    lease = claimed.lease
    history = await load(engine, lease.run)
    log = RunLog(engine.journal, lease, claimed.last, genesis(engine.identity.namespace, lease.run))
    return history, log
