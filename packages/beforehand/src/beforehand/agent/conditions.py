"""Conditions: expressions in CEL, the Common Expression Language. They compute, and cannot do anything else.

This is the only module that knows the library behind them. The library has no limit of its own
and does not return control to the event loop while it computes, so an expression that could cost too much is rejected:
each macro over a collection may run once for every item of the longest one, and each time read everything it is given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final, cast

import msgspec

from beforehand.errors import ContractError, UsageError
from beforehand.model.contract import Contract
from beforehand.policies import Gate

LONGEST: Final = 500
MOST_MACROS: Final = 2
LARGEST: Final = 100_000
"""The largest number of characters of values that an expression is given."""
COST_LIMIT: Final = 20_000_000
"""Characters read, times the rounds of all macros: measured, this takes less than a second."""

_ALWAYS: Final = "true"
_MACRO: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|map|filter)\s*\(\s*(?:([A-Za-z_]\w*)\s*,)?")
_USED: Final = re.compile(r"\bresults\s*(?:\.\s*([A-Za-z_]\w*)|\[\s*[\"']([^\"']+)[\"']\s*\])")
_RESULTS: Final = re.compile(r"(?<!\.)\bresults\b")
_INPUT: Final = re.compile(r"\binput\b")
_INPUTS: Final = re.compile(r"\binput\s*(?:\.\s*([A-Za-z_]\w*)|\[\s*[\"']([^\"']+)[\"']\s*\])")
_QUOTED: Final = r"""(?:"[^"]*"|'[^']*')"""
_TEXTS: Final = re.compile(rf"((?:results|input)\s*\[\s*{_QUOTED}\s*\])|{_QUOTED}|//[^\n]*", re.DOTALL)
_UNREAD: Final = re.compile(r"""[\\`]|"{3}|'{3}""")
"""Signs with which a text could end elsewhere than `_TEXTS` finds its end, or name a part by other letters."""
_NUMBER: Final = r"-?\d[\w.]*"
_CONSTANT: Final = rf'(?:{_NUMBER}|""|true|false)'
_LIMIT: Final = re.compile(
    rf"\s*([A-Za-z_]\w*)(?:\s*<=?\s*{_NUMBER}|\s*==\s*{_CONSTANT}|\s+in\s*\[\s*{_CONSTANT}(?:\s*,\s*{_CONSTANT})*\s*\])\s*"
    rf"|\s*[A-Za-z_]\w*\s*>=?\s*{_NUMBER}\s*"
)
"""A comparison with a constant in code without texts: one that names the argument that it limits, or a least number."""
_FUNCTIONS: Final = frozenset(
    {
        "size", "contains", "startsWith", "endsWith", "matches", "has", "int", "uint", "double", "string", "bytes",
        "duration", "timestamp", "type", "dyn", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek",
        "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds",
    }
)  # fmt: skip


class ConditionError(UsageError, ValueError):
    """An expression that cannot be parsed, or has no result for these values."""


@functools.lru_cache(maxsize=1024)
def _program(text: str) -> Any:  # the library types its programs loosely
    if len(text) > LONGEST:
        raise ConditionError(f"it has {len(text)} characters, and {LONGEST} are allowed")
    macros = len(_MACRO.findall(text))
    if macros > MOST_MACROS:
        raise ConditionError(f"it uses more than {MOST_MACROS} of all, exists, exists_one, map and filter")
    if macros and "matches" in text:
        raise ConditionError("it uses matches together with all, exists, exists_one, map or filter")
    import cel  # noqa: PLC0415 - half of a command's time to import

    try:
        return cel.compile(text)
    except ValueError as error:
        raise ConditionError(" ".join(str(error).split())[:200]) from error


def steps_used(text: str) -> frozenset[str]:
    """Parse a condition; the steps whose results it uses. Raises `ConditionError`."""
    checked(text, ("results", "input"))
    return frozenset(dotted or quoted for dotted, quoted in _USED.findall(_code(text)))


def reads_result_of(text: str, step: str) -> bool:
    """True if a condition reads, or may read, the result of this step: `results` without a named part may."""
    named = [dotted or quoted for dotted, quoted in _USED.findall(_code(text))]
    return step in named or len(named) < len(_RESULTS.findall(_code(text)))


def _code(text: str) -> str:
    """The expression without comments and texts, except texts that name a part: `results["seat"]`."""
    return _TEXTS.sub(lambda found: found[1] or '""', text)


def checked(text: str, known: Collection[str]) -> None:
    """Parse a condition that may use the `known` names. Raises `ConditionError`."""
    quotes = (found.start() for found in _TEXTS.finditer(text) if found[0][0] in "\"'")
    if _UNREAD.search(text) or any(text[at - 1 : at].isalnum() for at in quotes):
        raise ConditionError(
            "it has a backslash, a backtick, three quotes in a row, or a letter before a quote, as r'' and b'' have; "
            "write each text in one pair of quotes, and a pattern such as '[0-9]+[.]pdf'"
        )
    program = _program(text)
    unknown = sorted(set(program.variables()) - {*known, *_MACRO.findall(text)})
    if unknown:
        raise ConditionError(f"it uses {', '.join(unknown)}; choose from: {', '.join(known)}")
    named = {name for name in program.functions() if name.isidentifier() and not name.startswith("_")}
    if named - _FUNCTIONS:
        raise ConditionError(f"unknown function {', '.join(sorted(named - _FUNCTIONS))}")


def names_limited(text: str, known: Collection[str]) -> frozenset[str]:
    """Parse a bound on the `known` names; those that it limits. Raises `ConditionError`.

    A bound is a conjunction of comparisons with constants. So it cannot hold for every value, as `cents == cents` does.
    """
    checked(text, known)
    limited = set[str]()
    for comparison in _code(text).split("&&"):
        limit = _LIMIT.fullmatch(comparison)
        if limit is None:
            raise ConditionError(
                f"{comparison.strip()!r} compares no argument with a constant; write it such as cents <= 50000 && "
                "city in ['Rome', 'Oslo'], or leave it out: then a person is asked about the call when it comes"
            )
        limited.add(limit[1] or "")
    return frozenset(limited & set(_program(text).variables()))


def inputs_used(text: str) -> frozenset[str] | None:
    """The parts of the input that a condition names; None where it may use any of them."""
    named = _INPUTS.findall(_code(text))
    if len(named) < len(_INPUT.findall(_code(text))):
        return None
    return frozenset(dotted or quoted for dotted, quoted in named)


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Evaluate the condition for these values. Raises `ConditionError` if it has no answer."""
    answer = value_of(text, values)
    if not isinstance(answer, bool):
        raise ConditionError(f"{text!r} gave {answer!r}, which is neither true nor false")
    return answer


def value_of(text: str, values: Mapping[str, Any]) -> object:
    """Evaluate the expression for these values. Raises `ConditionError` if it has no answer."""
    program = _program(text)
    _affordable(text, values)
    try:
        answer: object = program.execute(dict(values))
    except (LookupError, ArithmeticError, TypeError, ValueError, RuntimeError) as error:
        raise ConditionError(f"{text!r} cannot be evaluated here: {error}") from error
    return answer


def _affordable(text: str, values: Mapping[str, Any]) -> None:
    """Raise `ConditionError` if the condition could cost more than `COST_LIMIT` for these values."""
    size = len(repr(values))
    if size > LARGEST:
        raise ConditionError(f"{text!r} was given {size} characters of values, and {LARGEST} are allowed")
    rounds = max(_widest(values), len(text)) ** len(_MACRO.findall(text))
    if rounds * size > COST_LIMIT:
        raise ConditionError(f"{text!r} could take {rounds} rounds over {size} characters: give it less")


def _widest(value: Any) -> int:
    """How many items the longest collection in a value has."""
    match value:
        case dict():
            inside = list(cast("dict[str, object]", value).values())
        case list() | tuple():
            inside = list(cast("list[object]", value))
        case _:
            return 0
    return max(len(inside), *map(_widest, inside)) if inside else 0


# --- gates ------------------------------------------------------------------------------------------------------------


def checked_gate(contract: Contract, gate: Gate, stored: Collection[str]) -> None:
    """Refuse a gate that cannot be judged over these parameters. Raises `ContractError` naming the fix."""
    where = f"tool {contract.tool}: gate={gate.when!r}"
    if contract.effect == "read":
        raise ContractError(f"{where}: a read changes nothing, so it needs no approval", next_step='drop effect="read"')
    if gate.when == _ALWAYS:
        return
    known = sorted(stored)
    try:
        checked(gate.when, known)
    except ConditionError as error:
        raise ContractError(
            f"{where}: {error}", known=f"it may use the parameters that are stored: {', '.join(known) or 'none'}",
            next_step='write it in CEL, such as gate="cents > 50000"; gate="true" asks always',
        ) from error  # fmt: skip


def gated(gate: str, arguments: Mapping[str, Any]) -> bool:
    """True if these arguments need a person's approval. Raises `ConditionError` if the gate has no answer."""
    if gate == _ALWAYS:
        return True  # without the library: a gate that always asks needs no condition
    plain = msgspec.to_builtins(dict(arguments), builtin_types=(Decimal,), str_keys=True, enc_hook=_dumped)
    return holds(gate, _numbers(plain))


def _dumped(value: object) -> object:
    """A pydantic model as plain values; anything else has none, and a reviewer is asked."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise ConditionError(f"{type(value).__name__} cannot be judged by a condition")
    return dump(mode="json")


def _numbers(value: Any) -> Any:
    """Decimals as numbers: conditions know no other numbers."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _numbers(one) for name, one in cast("dict[str, object]", value).items()}
        case list() | tuple():
            return [_numbers(one) for one in cast("list[object]", value)]
        case _:
            return value
