"""Looking at a policy without an app: archived versions, test cases, and facts in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from beforehand.errors import Unreadable, UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import read
from beforehand.model.policy import POLICIES, VARIABLES, Policy, PolicyFacts, Word, policy_stream, version_of_stream

if TYPE_CHECKING:
    from beforehand.people.policy.judge import PolicyJudge

_NOON: Final[dict[str, Any]] = {"tool": "", "agent": "", "hour": 12, "weekday": "mon"}


async def kept_policy(reader: JournalReader, version: str) -> Policy | None:
    """The text of this version when it was in force. None where no ruling kept it, or this release cannot read it."""
    for entry in await reader.journal.entries(policy_stream(version)):
        try:
            return read(entry, Policy)
        except Unreadable:
            return None
    return None


async def kept_versions(reader: JournalReader) -> list[str]:
    """The versions that were in force in this journal, the first one first."""
    entries = await reader.journal.entries(POLICIES)
    return [version_of_stream(one.stream) for one in entries]


class PolicyCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test case: an operation, and the expected ruling, with the rule if it is named."""

    name: str
    facts: dict[str, Any]
    expect: Word
    rule: str = ""


class Tried(msgspec.Struct, frozen=True):
    """The policy's ruling on a case. `why`: it could not be judged."""

    name: str
    expect: str
    word: str
    rule: str
    passed: bool
    why: str = ""


def cases_in(path: Path) -> list[PolicyCase]:
    """The cases of a YAML file. Raises `UsageError` naming the file and the case."""
    from beforehand.people.policy.policy_files import read_yaml  # noqa: PLC0415 - `why` reads no file of a policy

    given = read_yaml(path, "a file of cases")
    if not isinstance(given, list):
        raise UsageError(f"{path}: cases are a list", next_step=_HINT)
    return [_case(path, number, one) for number, one in enumerate(cast("list[object]", given), start=1)]


_HINT: Final = "write each as: {name: small, facts: {tool: refund, arguments: {cents: 900}}, expect: auto}"


def _case(path: Path, number: int, given: object) -> PolicyCase:
    try:
        case = msgspec.convert(given, PolicyCase)
        facts_of(case.facts, None)
    except (msgspec.ValidationError, UsageError) as error:
        where = cast("dict[str, Any]", given).get("name", number) if isinstance(given, dict) else number
        raise UsageError(f"{path}: case {repr(where)[:42]}: {error}", next_step=_HINT) from error
    return case


def tried(judge: PolicyJudge, case: PolicyCase) -> Tried:
    """Let the policy judge a case. Nothing is drawn: a sampled rule says `sample`."""
    facts, arguments = facts_of(case.facts, judge)
    ruling = judge.ruling(facts, arguments, lambda _: 1.0)
    passed = ruling.word == case.expect and case.rule in {"", ruling.rule}
    expect = case.expect + (f" by {case.rule!r}" if case.rule else "")
    return Tried(case.name, expect, ruling.word, ruling.rule, passed, ruling.why)


def facts_of(given: dict[str, Any], judge: PolicyJudge | None) -> tuple[PolicyFacts, dict[str, Any]]:
    """Facts as a case gives them: what it leaves out is unknown, and noon on a Monday. Raises `UsageError`."""
    if unknown := sorted(set(given) - set(VARIABLES)):
        raise UsageError(f"facts: {unknown[0]} does not exist; choose from: {', '.join(VARIABLES)}")
    values = dict(given)
    arguments: dict[str, Any] = values.pop("arguments", {})
    facts = msgspec.convert({**_NOON, **values}, PolicyFacts)
    if judge is not None and facts.amount is None:
        facts = msgspec.structs.replace(facts, amount=judge.amount(facts.tool, arguments))
    return facts, arguments


def facts_text(facts: PolicyFacts | None) -> str:
    """The facts of a ruling, on one line: unknown and usual ones are left out."""
    if facts is None:
        return "nothing"
    known = msgspec.to_builtins(facts)
    known.pop("tool")
    return ", ".join(f"{name} {_text(value)}" for name, value in known.items())


def _text(value: object) -> str:
    match value:
        case dict():
            inside = cast("dict[str, object]", value)
            return "(" + ", ".join(f"{name} {_text(one)}" for name, one in inside.items()) + ")"
        case float():
            return f"{value:g}"
        case _:
            return str(value)
