"""A policy with the language of its conditions; the engine asks it about each operation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from beforehand.agent.conditions import ConditionError, checked, holds, value_of
from beforehand.errors import UsageError
from beforehand.journal.entry_codec import readable
from beforehand.journal.port import JournalReads
from beforehand.model.policy import (
    MEMBERS,
    VARIABLES,
    Draw,
    Policy,
    PolicyFacts,
    Rule,
    Ruling,
    choose,
    text_of,
    version_of,
)
from beforehand.model.thresholds import THRESHOLDS, Move
from beforehand.policies import milliseconds

_QUEUE: Final = re.compile(r"\bqueue\b")
_HISTORY: Final = re.compile(r"\bhistory\b")
_MEMBER: Final = re.compile(r"\b(history|queue)\s*\.\s*([A-Za-z_]\w*)")
_FEW: Final = 80
_WHOLE: Final = re.compile(r"/\s*\d+(?![\d.])")


THRESHOLD: Final = "threshold"
"""How conditions name the thresholds of their policy: `confidence >= threshold.sure`."""


class PolicyError(UsageError):
    """An invalid policy. `faults` lists all faults, each naming its rule and its field."""

    def __init__(self, where: str, faults: tuple[str, ...]) -> None:
        others = f"; and {len(faults) - 1} more: beforehand policy check shows all" if len(faults) > 1 else ""
        super().__init__(
            f"{where}: {''.join(faults[:1])}{others}", next_step="correct it, then: beforehand policy check"
        )
        self.faults = faults


class PolicyJudge:
    """One policy, checked. Raises `PolicyError` for conditions that cannot be judged."""

    def __init__(self, policy: Policy, where: str = "") -> None:
        if faults := tuple(faults_of(policy)):
            raise PolicyError(where or f"the policy {policy.name}", faults)
        self.policy: Final = policy
        self.version: Final = version_of(policy)
        self.text: Final = text_of(policy)
        conditions = [*(rule.when for rule in policy.rules), policy.busy]
        self.asks_queue: Final = any(_QUEUE.search(text) for text in conditions)
        self.remembers_ms: Final = milliseconds(policy.remembers)
        self._thresholds: Final = {name: one.start for name, one in policy.thresholds.items()}

    def amount(self, tool: str, arguments: Mapping[str, Any]) -> float | None:
        """The amount of a call; None where that is not declared, or has no answer."""
        found = self._value(self.policy.amounts.get(tool), arguments)
        return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None

    def subject(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """The subject of a call; empty where that is not declared, or has no answer."""
        found = self._value(self.policy.subjects.get(tool), arguments)
        return str(found) if isinstance(found, (str, int)) and not isinstance(found, bool) else ""

    def ruling(self, facts: PolicyFacts, arguments: Mapping[str, Any], draw: Draw) -> Ruling:
        """The ruling on an operation. Total: an operation that cannot be judged is asked about."""
        values = {**facts.values(arguments), THRESHOLD: self._thresholds}
        return choose(self.policy, values, _holds, draw)

    def moved(self, positions: Mapping[str, ThresholdPosition]) -> PolicyJudge:
        """The same policy with its thresholds where they are now: it has another version."""
        starts = {name: one.at for name, one in positions.items()}
        moved = {
            name: msgspec.structs.replace(one, start=min(one.most, max(one.least, starts.get(name, one.start))))
            for name, one in self.policy.thresholds.items()
        }
        return (
            self
            if moved == self.policy.thresholds
            else PolicyJudge(msgspec.structs.replace(self.policy, thresholds=moved))
        )

    def _value(self, text: str | None, arguments: Mapping[str, Any]) -> object:
        try:
            return None if text is None else value_of(text, {"arguments": arguments})
        except ConditionError:
            return None


def _holds(text: str, values: Mapping[str, Any]) -> bool:
    """As `holds`. Raises `ValueError` with the reason in a few words: people read it in a question."""
    try:
        return holds(text, values)
    except ConditionError as error:
        missing = [name for name in VARIABLES if values.get(name) is None and re.search(rf"\b{name}\b", text)]
        if missing:
            raise ValueError(f"the case does not give its {' and '.join(missing)}") from error
        reason = str(error.__cause__ or error)
        message = (
            "it mixes kinds of values"
            if "overload" in reason or "Unsupported" in reason
            else " ".join(reason.split())[:_FEW]
        )
        raise ValueError(f"{message} (its condition cannot be evaluated here)") from error


# --- where its thresholds are now -----------------------------------------------------------------------------------


class ThresholdPosition(msgspec.Struct, frozen=True):
    """The recorded moves of one threshold: how many there are, when the last one was (wall clock), and where it led."""

    number: int
    since_ms: int
    at: float


async def threshold_positions(journal: JournalReads) -> dict[str, ThresholdPosition]:
    """The position of every threshold that was ever moved, by its name. An app judges by them when it opens."""
    found: dict[str, ThresholdPosition] = {}
    for entry, move in await readable(journal, await journal.entries(THRESHOLDS), Move):
        if entry.key:  # an entry without a key came second: it is on record and moves nothing
            before = found[move.name].number if move.name in found else 0
            found[move.name] = ThresholdPosition(before + 1, entry.at_ms, move.after)
    return found


# --- what is wrong with a policy --------------------------------------------------------------------------------


def faults_of(policy: Policy) -> Iterator[str]:
    """The faults of a policy: each text names the rule and the field."""
    for rule in policy.rules:
        where = f"rule {rule.name[:40]!r}"
        if (
            problem := _condition(rule.when, (*VARIABLES, THRESHOLD))
            or _no_threshold(policy, rule)
            or _overload(rule)
            or _unnamed(policy, rule)
        ):
            yield f"{where}: when: {problem}"
        if rule.busy_rate is not None and not policy.busy:
            yield f"{where}: busy_rate: the policy does not say when people are busy (busy: queue.depth > 100)"
    if policy.busy and (problem := _condition(policy.busy, ("queue",))):
        yield f"busy: {problem}"
    for field, expressions in (("amounts", policy.amounts), ("subjects", policy.subjects)):
        for tool, text in expressions.items():
            if problem := _condition(text, ("arguments",)) or _cut(field, text):
                yield f"{field}: {tool}: {problem}"


def _condition(text: str, known: Collection[str]) -> str:
    try:
        checked(text, known)
    except ConditionError as error:
        return error.message
    for name, member in _MEMBER.findall(text):
        if name in known and member not in MEMBERS[name]:
            return f"{name}.{member} does not exist; choose from: {', '.join(f'{name}.{one}' for one in MEMBERS[name])}"
    return ""


def _no_threshold(policy: Policy, rule: Rule) -> str:
    unknown = [name for name in thresholds_in(rule.when) if name not in policy.thresholds]
    return f"the policy declares no threshold {unknown[0]} (thresholds: {{{unknown[0]}: ...}})" if unknown else ""


def thresholds_in(text: str) -> list[str]:
    """The thresholds that a condition names."""
    return re.findall(rf"\b{THRESHOLD}\s*\.\s*([A-Za-z_]\w*)", text)


def _overload(rule: Rule) -> str:
    """Overload never approves anything."""
    if rule.then in {"auto", "sample"} and _QUEUE.search(rule.when):
        return f"a rule that reads the queue cannot say {rule.then}: overload never approves anything (see busy_rate)"
    return ""


def _unnamed(policy: Policy, rule: Rule) -> str:
    if _HISTORY.search(rule.when) and not policy.subjects:
        return (
            "it uses history, and the policy does not say whom a call concerns (subjects: {refund: arguments.customer})"
        )
    return ""


def _cut(field: str, text: str) -> str:
    """99 / 100 is 0 in CEL, as whole numbers are divided without a rest."""
    if field == "amounts" and _WHOLE.search(text):
        return "it divides by a whole number, which cuts off the rest: write double(arguments.cents) / 100.0"
    return ""


def plain(policy: Policy) -> dict[str, Any]:
    """A policy as plain values, for people and for the journal."""
    values: dict[str, Any] = msgspec.to_builtins(policy)
    return values
