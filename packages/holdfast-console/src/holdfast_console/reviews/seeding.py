"""Planting known-bad cases among what people are asked, like the questions that they are really asked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.engine.active_run.log import load
from holdfast.engine.engine import Engine
from holdfast.engine.environment import Stamp
from holdfast.errors import JournalError, UsageError
from holdfast.inspect.reader import JournalReader, waits_of
from holdfast.journal.port import LeaseGranted, RunChange, RunRow
from holdfast.journal.record_codec import encode
from holdfast.journal.run_log import RunLog, beginning, genesis
from holdfast.model import records as r
from holdfast.model.ids import approval_digest, checked_run_id, operation_id
from holdfast.model.seeded_cases import SeededCase, ending
from holdfast.model.system import PLANTED, is_planted, is_system
from holdfast.model.waits import ListedWait, call_text, is_whole

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
    reader, now_ms = JournalReader(engine.journal, engine.identity), engine.environment.clock.wall_ms()
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
    return SeedingResult(tuple(items), tuple([await withdraw(engine, row.run) for row in old]))


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
    question = _question(case, model, operation_id(run, step))
    stamp = Stamp(at=engine.environment.clock.wall_ms(), up=engine.journal.now().ms)
    until = stamp["at"] + model.parked.until - model.parked.at if model.parked.until else 0
    records = _records(engine, case, model, question, (run, until), stamp)
    title = _title(engine, case, model)
    if model.intent.title and not title:
        raise UsageError(
            f"what people are asked about {case.tool} has a title, and this case has none: it would be recognised",
            known=f"a title reads like: {model.intent.title}",
            next_step='add "title" to the case',
        )
    asked = f"{title}: {question}" if title else question
    asks, queue = f"{operation_id(run, step)}: {asked}", model.parked.queue
    parked, then = records[-1], model.parked.on_expiry
    assert isinstance(parked, r.OperationParked), parked
    shown = parked.asks if is_whole(msgspec.json.encode(case.arguments)) else ""
    wait = ListedWait("approval", step, asks, until or None, stamp["at"], queue, case.tool, then, shown)
    change = RunChange("suspended", model.parked.why, None, msgspec.json.encode([wait]), release=True)
    new = beginning(engine.identity.namespace, checked_run_id(run), PLANTED + model.agent, map(encode, records), change)
    claimed = await engine.leases.claim(run, new)
    if isinstance(claimed, LeaseGranted):
        engine.leases.let_go(run)
        if claimed.fresh:
            return operation_id(run, step)
        engine.leases.give_back(claimed.row)
    raise UsageError(f"run {run} exists already", next_step="give the planted case another run")


def _records(
    engine: Engine, case: SeededCase, model: CaseTemplate, question: str, place: tuple[str, int], stamp: Stamp
) -> list[r.Record]:
    """A run that asks like the model, about other arguments. It claims no business key: it blocks no other run."""
    run, until = place
    arguments = r.Raw(msgspec.json.encode(case.arguments, order="deterministic"))
    digest = hashlib.sha256(bytes(arguments)).hexdigest()
    intent = msgspec.structs.replace(
        model.intent, arguments=arguments, digest=digest, claim="", words="", title=_title(engine, case, model)
    )
    asks = approval_digest(engine.identity.namespace, operation_id(run, model.parked.step), digest.encode())
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
    return code.title_of(msgspec.json.encode(case.arguments))


def _question(case: SeededCase, model: CaseTemplate, item: str) -> str:
    """The question of the model, with this call in it."""
    call = call_text(case.tool, msgspec.json.encode(case.arguments, order="deterministic"), item)
    _, _, because = model.parked.why.partition(" be sent?")
    return f"may {call} be sent?{because}"


async def _free_name(engine: Engine, like: str) -> str:
    """A name like that of another run: its last number is another one, or it gets one."""
    for _ in range(100):
        number = str(int(engine.environment.rng.uniform(100, 100_000)))
        name = re.sub(r"\d+(?!.*\d)", number, like) if re.search(r"\d", like) else f"{like}-{number}"
        if not await engine.journal.runs(run=name):
            return name
    raise UsageError(f"no name like {like} is free", next_step="give the case a run of its own")


async def withdraw(engine: Engine, run: str) -> str:
    """End a planted run that is unanswered."""
    claimed = await engine.leases.claim(run)
    if not isinstance(claimed, LeaseGranted):
        return run
    try:
        history = await load(engine, run)
        log = RunLog(engine.journal, claimed.lease, claimed.last, genesis(engine.identity.namespace, run))
        now = engine.environment.clock.wall_ms(), engine.journal.now().ms
        bodies = [encode(record) for record in ending(history, None, "", *now)]
        await log.append(bodies, RunChange("completed", release=True))
    except JournalError:
        engine.leases.give_back(claimed.row)
        raise
    finally:
        engine.leases.let_go(run)
    return run
