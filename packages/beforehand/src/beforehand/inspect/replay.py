"""Replay: an agent's code against the record of a run, with nothing recorded and nothing sent.

The run is driven by the real engine over a copy of its records in memory. The copy takes back the
record's own steps and refuses the first new one, before anything is called: that is where a replay
ends, unless the code has diverged before.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from beforehand.agent.agent import AnyAgent, gather_agents, gather_tools
from beforehand.agent.tool import Tool
from beforehand.engine.engine import Engine
from beforehand.engine.environment import system_environment
from beforehand.engine.run_driver import Conclusion, drive_run
from beforehand.engine.sealing import UNKNOWN_PLACE, waiting_place
from beforehand.engine.settings import Settings
from beforehand.engine.suspension import Ending
from beforehand.engine.tool_protocol import Code
from beforehand.errors import AmbiguousStep, ReplayDiverged
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.render_records import stored
from beforehand.inspect.run_state import step_of, without_life
from beforehand.journal import host
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import ClaimRequest, CommitRequest, Identity, LeaseGranted, NewRun, RunChange, Write
from beforehand.journal.record_codec import decode, encode
from beforehand.journal.run_log import RunLog, genesis
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type

_NEW: Final = (
    r.AttemptStarted, r.OperationPlanned, r.ReadRecorded, r.DecisionStarted, r.ValueRecorded, r.TimerSet, r.TimerFired,
    r.QuestionAsked, r.EventReceived, r.OutcomeReused, r.OperationParked, r.MessageHeard, r.HandedOff,
    r.ChildStarted, r.ChildJoined,
)  # fmt: skip
_BEFORE_THE_WORLD: Final = {"before_send", "before_verify"}  # a write is refused earlier, with its intent


class Replayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far code and record agree. `at` is the first step that is new or open, `where` its place in the code."""

    run: str
    agent: str
    records: int
    agrees: bool
    end: str
    at: str = ""
    where: str = ""
    difference: str = ""
    next_step: str = ""


class NewStep(BaseException):
    """The code asks for something that is not on record. A `BaseException`: agent code must not handle it."""

    def __init__(self, step: str = "") -> None:
        super().__init__(step)
        self.step = step


async def replay(reader: JournalReader, run: str, agents: Iterable[AnyAgent]) -> Replayed:
    """Drive the code of the run's agent over its record. Raises `UnknownRun`, or `UsageError` for unknown code."""
    return await replay_records(reader.identity, run, [record for _, record in await reader.all_records(run)], agents)


async def replay_records(
    identity: Identity, run: str, records: Sequence[r.Record], agents: Iterable[AnyAgent]
) -> Replayed:
    """As `replay`, over records from anywhere. Raises `UsageError` for unknown code."""
    history = RunHistory(run)
    for record in records:
        history.add(record)
    held = gather_agents(agents)
    tools = gather_tools(held.values(), ())
    copy = _Copy(identity, records)
    kept = without_life(records)
    handlers = _disarm(tools.values())
    environment = msgspec.structs.replace(system_environment(), crash=copy)
    engine = Engine(copy, environment, _SETTINGS, tools, held, host.this_process)
    await engine.open()
    try:
        await copy.seed(run, history, kept)
        copy.watching = engine
        conclusion = await _driven(engine, run, copy)
        return _judge(history, conclusion, copy) if conclusion is not None else _stuck(history, copy)
    finally:
        copy.watching = None
        await engine.close()
        for tool, former in handlers:
            tool.handlers.update(former)


async def _driven(engine: Engine, run: str, copy: _Copy) -> Conclusion | None:
    """The end of the code; None where it waits for something that no record will bring, and does nothing meanwhile.

    What met the end of the record may be a task that the code does not look after, so that it waits for ever.
    """
    driving = asyncio.ensure_future(drive_run(engine, run))
    before = None
    while not driving.done() and before != (now := _progress(engine, copy)):
        before = now
        await asyncio.wait({driving}, timeout=STUCK_AFTER_S)
    if driving.done():
        return await driving
    if copy.met is None:
        copy.note_left()
    copy.place = next((place for task in asyncio.all_tasks() if (place := waiting_place(task)) != UNKNOWN_PLACE), "")
    for instance in engine.active_runs.values():
        instance.end(Ending("shutdown", "the code waits for something that is not on record"))
    await asyncio.wait({driving}, timeout=STUCK_AFTER_S)
    driving.cancel()
    return None


def _progress(engine: Engine, copy: _Copy) -> object:
    """A value that changes with every step that the code takes."""
    return copy.written, [
        (len(one.replay.expected), len(one.history.delivered.by_step)) for one in engine.active_runs.values()
    ]


T = TypeVar("T")
STUCK_AFTER_S: Final = 10.0
"""Time without a recorded step after which code under replay is taken to wait for ever."""
_SETTINGS: Final = Settings(hold_ms=0, claims_allowed=2**31, patience_ms=1000, grace_ms=1000)


class _Copy(MemoryJournal):
    """The records of one run in memory; once watched, it refuses new ones."""

    def __init__(self, identity: Identity, records: Sequence[r.Record]) -> None:
        last = records[-1]
        super().__init__(lambda: last.up, lambda: last.at)
        self.identity = msgspec.structs.replace(identity, trust="trusted", reason="")
        self.watching: Engine | None = None
        self.left: list[str] = []
        self.met: NewStep | None = None
        self.written = 0
        self.place = ""  # where code waits that never ends
        self.over = False  # the first new step was met: what the engine does after it is not recorded

    async def seed(self, run: str, history: RunHistory, records: Sequence[r.Record]) -> None:
        """Take the records, under a token newer than any of theirs."""
        assert history.lifecycle.started is not None, run
        newest = max(history.ownership.owners, default=0)
        while True:
            new = NewRun(history.lifecycle.started.agent, program=history.lifecycle.started.program)
            claimed = await self.commit(ClaimRequest(run, "the record", new))
            assert isinstance(claimed, LeaseGranted), claimed
            log = RunLog(self, claimed.lease, claimed.last, genesis(self.identity.namespace, run))
            if claimed.lease.token > newest:
                break
            await log.append((), RunChange("running", release=True))
        await log.append([encode(record) for record in records], RunChange("running", release=True))

    async def commit(self, request: CommitRequest[T]) -> T:
        if not isinstance(request, Write):
            return await super().commit(request)
        self._refuse(request)
        return cast("T", await super().commit(msgspec.structs.replace(request, rows=()) if self.over else request))

    def ride(self, write: Write) -> None:
        self._refuse(write)
        if not self.over:
            super().ride(write)

    def _refuse(self, write: Write) -> None:
        self.written += 1
        if self.watching is None or self.over:
            return
        for row in write.rows:
            record = decode(row.body)
            if isinstance(record, _NEW):
                self.stop(step_of(record))

    def stop(self, step: str = "") -> None:
        """End the record here. Remember the recorded steps that have not come back."""
        assert self.watching is not None
        if self.over:
            raise NewStep(step)
        self.over = True
        self.note_left(step)
        self.met = NewStep(step)
        raise self.met

    def note_left(self, step: str = "") -> None:
        """Remember the recorded steps that have not come back, but for this one."""
        assert self.watching is not None
        for instance in self.watching.active_runs.values():
            delivered = [name for name in instance.history.delivered.by_step if name != step]
            self.left = [
                *sorted(instance.replay.expected - {step}),
                *(name for name in delivered if name not in instance.replay.expected),
            ]

    def reached(self, point: str) -> None:
        """The engine is about to make an outside call."""
        if self.watching is not None and point in _BEFORE_THE_WORLD:
            self.stop()


def _disarm(tools: Iterable[Tool[Any, Any]]) -> list[tuple[Tool[Any, Any], dict[str, Code]]]:
    """Keep handlers from reading outside systems. `expect` and `claim` only compute."""

    async def refuse(*_: object, **__: object) -> None:
        raise NewStep

    former: list[tuple[Tool[Any, Any], dict[str, Code]]] = []
    for tool in tools:
        reading = {name: code for name, code in tool.handlers.items() if name in {"verify", "observe", "compensate"}}
        former.append((tool, reading))
        tool.handlers.update(dict.fromkeys(reading, Code(refuse, is_async=True)))
    return former


# --- what it means -----------------------------------------------------------------------------------------


def _judge(history: RunHistory, conclusion: Conclusion, copy: _Copy) -> Replayed:
    error = conclusion.error
    match error:
        case ReplayDiverged():
            return _diverged(history, error.difference or error.message)
        case AmbiguousStep():
            return _diverged(history, error.message, next_step=error.next_step)
        case NewStep():
            return _new_step(history, error, copy)
        case _:
            pass
    if conclusion.status == "completed":
        completed = history.lifecycle.completed
        if completed is None or bytes(completed.result) == conclusion.result:
            return _agrees(history, "completed")
        now = f"+ now: completed with {stored(r.Raw(conclusion.result))}"
        return _diverged(history, f"{_recorded_end(history)}\n{now}")
    where = _place(error) if error is not None else ""
    if conclusion.status == "suspended":
        at = conclusion.waits[0].step if conclusion.waits else ""
        now, same = f"waits: {conclusion.reason}", history.lifecycle.completed is None
    else:
        at, now = "", f"stopped: {conclusion.detail}"
        same = history.lifecycle.status != "stopped" or _stop_text(history) == now
        same = same and history.lifecycle.completed is None
    if same:
        return _agrees(history, now, at, where)
    return _diverged(history, f"{_recorded_end(history)}\n+ now: {now}", at, where)


def _stuck(history: RunHistory, copy: _Copy) -> Replayed:
    """The code never ends: what it waits for comes from a task that met a new step, or from outside the record."""
    if copy.met is not None:
        return msgspec.structs.replace(_new_step(history, copy.met, copy), where=_place(copy.met) or copy.place)
    now = "waits for something that is not on record"
    if history.lifecycle.completed is None and not copy.left:
        return _agrees(history, now, where=copy.place)
    recorded = _not_reached(copy) or _recorded_end(history)
    return _diverged(history, f"{recorded}\n+ now: {now}", where=copy.place)


def _not_reached(copy: _Copy) -> str:
    return "\n".join(f"- recorded, not reached: {name}" for name in copy.left[:20])


def _new_step(history: RunHistory, error: NewStep, copy: _Copy) -> Replayed:
    """The code went past the record. That is expected, unless the record is whole or goes on."""
    where, step = _place(error), error.step
    now = f"+ now: {step or 'a read that is not on record'}"
    if copy.left:
        return _diverged(history, f"{_not_reached(copy)}\n{now}", step, where)
    if history.lifecycle.completed is not None:
        return _diverged(history, f"{_recorded_end(history)}\n{now}", step, where)
    known = history.operations.get(step)
    return _agrees(history, f"an open step, {known.phase}" if known is not None else "a new step", step, where)


def _stop_text(history: RunHistory) -> str:
    return f"stopped: {history.lifecycle.stopped.error}" if history.lifecycle.stopped is not None else ""


def _recorded_end(history: RunHistory) -> str:
    if history.lifecycle.completed is not None:
        return f"- recorded: completed with {stored(history.lifecycle.completed.result)}"
    return f"- recorded: {_stop_text(history) or history.lifecycle.status}"


def _agrees(history: RunHistory, end: str, at: str = "", where: str = "") -> Replayed:
    assert history.lifecycle.started is not None, history.run
    return Replayed(history.run, history.lifecycle.started.agent, history.records, True, end, at, where)


def _diverged(history: RunHistory, difference: str, at: str = "", where: str = "", *, next_step: str = "") -> Replayed:
    assert history.lifecycle.started is not None, history.run
    agent = history.lifecycle.started.agent
    fix = f"restore the code or add a version marker, then {to_type('resume', history.run)}"
    return Replayed(history.run, agent, history.records, False, "diverged", at, where, difference, next_step or fix)


def _place(error: BaseException) -> str:
    """The line of the agent's code that asked for it."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/beforehand/" not in frame.filename]
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else ""
