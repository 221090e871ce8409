"""Planting known-bad cases among what people are asked, like the questions that they are really asked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from beforehand.engine.active_run.log import load
from beforehand.engine.commands import Applied, refused_unread
from beforehand.engine.engine import Engine
from beforehand.engine.environment import Stamp
from beforehand.errors import Unreadable, UsageError
from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.journal.entry_codec import read, set_aside
from beforehand.journal.port import LeaseGranted, RunChange, RunRow
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import beginning
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.model.ids import approval_digest, checked_run_id, operation_id
from beforehand.model.run_history import RunHistory
from beforehand.model.system import PLANTED, is_planted, is_system
from beforehand.model.waits import ListedWait
from beforehand.model.wording import asked_about, shows_whole
from beforehand_console.reviews.seeded_cases import SeededCase, SeededCaseEnd, ending, ending_text

RATE: Final = 0.04
"""Planted cases for each real question."""
KEPT_DAYS: Final = 3.0
"""Days after which an unanswered case is withdrawn."""
_DAY_MS: Final = 86_400_000


class CaseTemplate(msgspec.Struct, frozen=True):
    """A real question about a tool: the model of a planted one."""

    run: str
    agent: str
    intent: r.Intent
    parked: r.OperationParked
    contract: r.ContractStored | None
    decision: r.DecisionRecorded | None


class SeedingResult(msgspec.Struct, frozen=True):
    """The result: the items that were planted, and the runs that were withdrawn."""

    items: tuple[str, ...]
    withdrawn: tuple[str, ...]


async def seed_cases(
    engine: Engine, cases: Sequence[SeededCase], rate: float = RATE, kept_days: float = KEPT_DAYS
) -> SeedingResult:
    """Bring the planted cases of the last week up to `rate` for each question that people were asked.

    Cases are drawn by chance. One that waits for longer than `kept_days`, or beyond its deadline, is withdrawn. Raises
    `UsageError` for a case about a tool that people were never asked about: nothing would be like it.
    """
    if not cases:
        raise UsageError("the file has no cases to plant", next_step="write at least one known-bad case")
    reader, now_ms = JournalReader(engine.journal, engine.identity), engine.wall_ms()
    asked, planted, old, models = 0, 0, list[RunRow](), dict[str, CaseTemplate]()
    async for row in reader.every_run():
        recent = row.created_ms >= now_ms - 7 * _DAY_MS
        if is_planted(row.agent):
            planted += recent
            if row.status == "suspended" and _is_over(row, now_ms, kept_days):
                old.append(row)
        elif not is_system(row.agent):
            asked += await _learn(reader, row, models) if row.updated_ms >= now_ms - 7 * _DAY_MS else 0
    _checked(cases, models)
    wanted = max(0, int(rate * asked + engine.environment.rng.uniform(0, 1)) - planted)
    items = [await seed_case(engine, case, models[case.tool]) for case in _drawn(engine, cases, wanted)]
    return SeedingResult(tuple(items), tuple([row.run for row in old if await withdraw(engine, row.run)]))


def _is_over(row: RunRow, now_ms: int, kept_days: float) -> bool:
    """True if no answer is wanted any more: a real question would have ended at its deadline, too."""
    ends = [wait.due for wait in waits_of(row) if wait.due is not None and wait.then == "refuse"]
    return row.created_ms < now_ms - kept_days * _DAY_MS or min(ends, default=now_ms + 1) <= now_ms


async def _learn(reader: JournalReader, row: RunRow, models: dict[str, CaseTemplate]) -> int:
    """How many approvals this run asked for; the last one about each tool is a model."""
    intents: dict[str, r.Intent] = {}
    contracts: dict[str, r.ContractStored] = {}
    decision: r.DecisionRecorded | None = None
    asked = 0
    async for _, record in reader.readable_records(row.run):
        intent = getattr(record, "intent", None)
        if isinstance(intent, r.Intent):
            intents[str(getattr(record, "step", ""))] = intent
        match record:
            case r.ContractStored():
                contracts[record.digest] = record
            case r.DecisionRecorded():
                decision = record
            case r.OperationParked() if record.asks and record.step in intents:
                asked += 1
                intent = intents[record.step]
                contract = contracts.get(intent.contract)
                models[intent.tool] = CaseTemplate(row.run, row.agent, intent, record, contract, decision)
            case _:
                continue
    return asked


def _checked(cases: Sequence[SeededCase], models: dict[str, CaseTemplate]) -> None:
    if unlike := sorted({case.tool for case in cases} - models.keys()):
        raise UsageError(
            f"no question about {unlike[0]} was asked in the last week",
            known=f"there were questions about: {', '.join(sorted(models)) or 'nothing'}",
            next_step="plant cases about these tools: a planted case has to look like a real one",
        )


def _drawn(engine: Engine, cases: Sequence[SeededCase], count: int) -> list[SeededCase]:
    """So many cases by chance, none of them twice before all were used."""
    left: list[SeededCase] = []
    found: list[SeededCase] = []
    for _ in range(count):
        left = left or list(cases)
        found.append(left.pop(min(len(left) - 1, int(engine.environment.rng.uniform(0, len(left))))))
    return found


async def seed_case(engine: Engine, case: SeededCase, model: CaseTemplate) -> str:
    """Plant one case like `model`; its item. Raises `UsageError` where its run exists already."""
    run = case.run or await _free_name(engine, model.run)
    step = model.parked.step
    stamp = Stamp(at=engine.wall_ms(), up=engine.journal.clock().earliest_ms)
    until = stamp["at"] + model.parked.until - model.parked.at if model.parked.until else 0
    records = _records(engine, case, model, (run, until), stamp)
    if model.intent.title and not _title(engine, case, model):
        raise UsageError(
            f"what people are asked about {case.tool} has a title, and this case has none: it would be recognised",
            known=f"a title reads like: {model.intent.title}",
            next_step='add "title" to the case',
        )
    parked, then, queue = records[-1], model.parked.on_expiry, model.parked.queue
    assert isinstance(parked, r.OperationParked), parked
    asks = f"{operation_id(run, step)}: {parked.why}"
    shown = parked.asks if shows_whole(parked.why, case.tool, _arguments(case)) else ""
    wait = ListedWait("approval", step, asks, until or None, stamp["at"], queue, case.tool, then, shown)
    change = RunChange("suspended", model.parked.why, None, msgspec.json.encode([wait]), release=True)
    new = beginning(engine.identity.namespace, checked_run_id(run), PLANTED + model.agent, map(encode, records), change)
    if not await engine.leases.store(run, new):
        raise UsageError(f"run {run} exists already", next_step="give the planted case another run")
    return operation_id(run, step)


def _records(
    engine: Engine, case: SeededCase, model: CaseTemplate, place: tuple[str, int], stamp: Stamp
) -> list[r.Record]:
    """A run that asks like the model, about other arguments. It claims no business key: it blocks no other run."""
    run, until = place
    arguments = r.Raw(_arguments(case))
    digest = hashlib.sha256(_arguments(case)).hexdigest()
    intent = msgspec.structs.replace(
        model.intent, arguments=arguments, digest=digest, claim="", words="", title=_title(engine, case, model)
    )
    asks = approval_digest(engine.identity.namespace, operation_id(run, model.parked.step), digest.encode())
    question = asked_about(intent) + model.parked.why.removeprefix(asked_about(model.intent))
    parked = msgspec.structs.replace(model.parked, why=question, asks=asks, people=1, until=until, **stamp)
    begun = r.RunStarted(agent=PLANTED + model.agent, input=r.Raw(msgspec.json.encode(case)), digest=digest, **stamp)
    records: list[r.Record] = [begun]
    if model.contract is not None:
        records.append(msgspec.structs.replace(model.contract, **stamp))
    if model.decision is not None:
        why, sure = case.thought, case.confidence
        seen = r.Raw(msgspec.json.encode(case.seen)) if case.seen else model.decision.seen
        thought = msgspec.structs.replace(
            model.decision, seen=seen, result=arguments, why=why, confidence=sure, digest=digest, **stamp
        )
        records.append(thought)
    return [*records, r.OperationPlanned(step=model.parked.step, intent=intent, waits_for="a person", **stamp), parked]


def _title(engine: Engine, case: SeededCase, model: CaseTemplate) -> str:
    """The title of the case, or the one that its tool gives to such a call; none where the model has none."""
    code = engine.tools.get(case.tool)
    if not model.intent.title:
        return ""
    if case.title or code is None:
        return case.title
    return code.spec.title_of(msgspec.json.encode(case.arguments))


def _arguments(case: SeededCase) -> bytes:
    return msgspec.json.encode(case.arguments, order="deterministic")


async def _free_name(engine: Engine, like: str) -> str:
    """A name like that of another run: its last number is another one, or it gets one."""
    for _ in range(100):
        number = str(int(engine.environment.rng.uniform(100, 100_000)))
        name = re.sub(r"\d+(?!.*\d)", number, like) if re.search(r"\d", like) else f"{like}-{number}"
        if not await engine.journal.runs(run=name):
            return name
    raise UsageError(f"no name like {like} is free", next_step="give the case a run of its own")


async def withdraw(engine: Engine, run: str) -> bool:
    """End a planted run that is unanswered. False if an answer to it is in the ledger, which ends it instead."""
    ended = await _end(engine, run, withdraws=True)
    return isinstance(ended, SeededCaseEnd) and ended.end == "withdrawn"


async def end_answered(engine: Engine, run: str) -> Applied:
    """End a planted run with the first answer about it. The result has a note for the person who gave it."""
    ended = await _end(engine, run)
    if isinstance(ended, Applied):
        return ended
    return Applied(run, at_once=True, note="" if ended is None else ending_text(ended), alert=ended is not None)


async def _end(engine: Engine, run: str, *, withdraws: bool = False) -> SeededCaseEnd | Applied | None:
    """Apply the commands to a planted run in one commit: how it ended, or None if none of them ends it."""
    claimed = await engine.leases.claim(run)
    if not isinstance(claimed, LeaseGranted):  # another process is ending it
        return Applied(run, at_once=False, elsewhere=True, owner=None if claimed is None else claimed.owner)
    with engine.leases.idle(claimed) as log:
        history = await load(engine, run)
        stamp = Stamp(at=engine.wall_ms(), up=engine.journal.clock().earliest_ms)
        await log.append(*await _ending(engine, claimed.row, history, stamp, withdraws=withdraws))
    completed = history.lifecycle.completed
    return None if completed is None else msgspec.json.decode(completed.result, type=SeededCaseEnd)


async def _ending(
    engine: Engine, row: RunRow, history: RunHistory, stamp: Stamp, *, withdraws: bool
) -> tuple[list[bytes], RunChange]:
    """The records of the commands that came, of which the first answer ends the run; they are added to `history`."""
    bodies: list[bytes] = []

    def add(*records: r.Record) -> None:
        for record in records:
            history.add(record)
            bodies.append(encode(record))

    for entry in await engine.journal.entries(command_stream(row.run), history.entry_seen):
        try:
            command = read(entry, Command)
        except Unreadable as error:
            await set_aside(engine.journal, entry, error)
            add(refused_unread(entry, error, stamp))
            continue
        add(r.CommandApplied(command=command.word, by=command.by, entry=entry.id, note=command.note, **stamp))
        if command.record is not None and history.lifecycle.completed is None:
            add(*ending(history, command.record, command.by, **stamp))
    if withdraws and history.lifecycle.completed is None:
        add(*ending(history, None, "", **stamp))
    if history.lifecycle.completed is None:
        return bodies, RunChange(row.status, row.reason, None, row.waits, release=True)
    return bodies, RunChange("completed", release=True)
