"""A dry-run: a policy judges the recorded past, beside what really happened. Nothing is written.

Operations that were judged then keep their facts. Earlier ones are judged by their records. These lack the number of
waiting items and the facts about the subject, so a rule that needs them counts as a question.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec

from beforehand.agent.conditions import holds
from beforehand.inspect.reader import JournalReader
from beforehand.model import records as r
from beforehand.model.canonical.plain import plain_arguments
from beforehand.model.contract import Contract
from beforehand.model.ids import operation_id
from beforehand.model.policy import WEEKDAYS, PolicyFacts, Ruling, chance
from beforehand.model.system import is_system
from beforehand.people.policy.judge import PolicyJudge


class JudgedCall(msgspec.Struct, frozen=True):
    """One operation of the past: whether people were asked then, and the policy's ruling now.

    `override` is what a person did instead of approving it unchanged: declined, edited, answered. `missed`: the policy
    would have sent it without asking.
    """

    operation: str
    asked_then: bool
    asks_now: bool
    word: str
    rule: str
    override: str = ""
    by: str = ""
    missed: bool = False
    why: str = ""


class Backtest(msgspec.Struct, frozen=True):
    """The changes that a policy would have made, over everything that the journal holds."""

    version: str
    runs: int
    operations: int
    asked_then: int
    asks_now: int
    refuses_now: int
    unjudged: int
    overrides: int
    missed: list[JudgedCall]
    rules: dict[str, dict[str, int]]


async def backtest_policy(reader: JournalReader, judge: PolicyJudge) -> Backtest:
    """Judge every write that agents made, as it was when it was first judged."""
    found: list[JudgedCall] = []
    runs = 0
    async for row in reader.every_run():
        if not is_system(row.agent):
            runs += 1
            found.extend([one async for one in _of_run(reader, judge, row.run, row.agent)])
    rules: dict[str, dict[str, int]] = {}
    for one in found:
        words = rules.setdefault(one.rule, {})
        words[one.word] = words.get(one.word, 0) + 1
    return Backtest(
        version=judge.version,
        runs=runs,
        operations=len(found),
        asked_then=sum(one.asked_then for one in found),
        asks_now=sum(one.asks_now for one in found),
        refuses_now=sum(one.word == "refuse" for one in found),
        unjudged=sum(bool(one.why) for one in found),
        overrides=sum(bool(one.override) for one in found),
        missed=[one for one in found if one.missed],
        rules=rules,
    )


class _Past:
    """One operation, from the records of its run, and the contract that it was made under."""

    def __init__(self, agent: str, at: int, intent: r.Intent) -> None:
        self.agent = agent
        self.at = at
        self.intent = intent
        self.contract = Contract(intent.tool)
        self.facts: PolicyFacts | None = None
        self.asked = False
        self.override = self.by = ""

    def add(self, record: r.Record) -> None:
        """Take one more record about it."""
        match record:
            case r.Ruled():
                self.facts = self.facts or record.facts
            case r.OperationParked() if record.asks:
                self.asked = True
            case r.ApprovalRefused(code=""):
                self.override, self.by = "declined", record.by
            case r.ArgumentsEdited():
                self.override, self.by = "edited", record.by
            case r.ResultGiven():
                self.override, self.by = "answered", record.by
            case _:
                return


async def _of_run(reader: JournalReader, judge: PolicyJudge, run: str, agent: str) -> AsyncIterator[JudgedCall]:
    past: dict[str, _Past] = {}
    contracts: dict[str, Contract] = {}
    async for _, record in reader.readable_records(run):
        if isinstance(record, r.ContractStored):
            contracts[record.digest] = msgspec.json.decode(record.clauses, type=Contract)
        elif (step := str(getattr(record, "step", ""))) in past:
            past[step].add(record)
        elif isinstance(record, (r.OperationPlanned, r.AttemptStarted)):
            intent = record.intent
            if intent is not None and not intent.serves:  # it begins a write; compensations are not judged
                past[step] = _Past(agent, record.at, intent)
    for step, one in past.items():
        one.contract = contracts.get(one.intent.contract, one.contract)
        yield _judged(judge, reader.identity.secret, operation_id(run, step), one)


def _judged(judge: PolicyJudge, secret: bytes, name: str, one: _Past) -> JudgedCall:
    arguments = plain_arguments(bytes(one.intent.arguments))
    facts = msgspec.structs.replace(
        one.facts or _facts(one),
        amount=judge.amount(one.intent.tool, arguments),
        subject=judge.subject(one.intent.tool, arguments),
    )
    ruling: Ruling = judge.ruling(facts, arguments, lambda what: chance(secret, name, what))
    asks = ruling.word != "refuse" and (ruling.asks or _gated(one.contract, arguments))
    missed = bool(one.override) and not asks and ruling.word != "refuse"
    return JudgedCall(name, one.asked, asks, ruling.word, ruling.rule, one.override, one.by, missed, ruling.why)


def _facts(one: _Past) -> PolicyFacts:
    """The recorded facts of an operation that no policy judged."""
    moment = datetime.fromtimestamp(one.at / 1000, UTC)
    return PolicyFacts(
        tool=one.intent.tool,
        agent=one.agent,
        hour=moment.hour,
        weekday=WEEKDAYS[moment.weekday()],
        effect=one.contract.effect,
        confidence=one.intent.confidence,
        reversible=one.contract.restores,
        taint=one.intent.taint,
        origin=one.intent.origin,
    )


def _gated(contract: Contract, arguments: dict[str, object]) -> bool:
    """True if the tool's own gate asks: it would do so whatever a policy says."""
    try:
        return contract.gate is not None and holds(contract.gate.when, arguments)
    except ValueError:
        return True
