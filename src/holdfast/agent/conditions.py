"""Conditions: expressions in CEL, the Common Expression Language. They compute, and cannot do anything else.

This is the only module that knows the library behind them (the `rules` extra). An expression may be five hundred
characters long and use two macros over collections; with the bound on what it is given, one evaluation stays below a
million steps.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import UsageError

LONGEST: Final = 500
MOST_MACROS: Final = 2
LARGEST: Final = 100_000
"""How many characters of JSON an expression is given at most."""

_MACRO: Final = re.compile(r"\.(all|exists|exists_one|map|filter)\s*\(")
_USED: Final = re.compile(r"\bresults\s*(?:\.\s*([A-Za-z_]\w*)|\[\s*[\"']([^\"']+)[\"']\s*\])")


class ConditionError(UsageError, ValueError):
    """An expression that cannot be parsed, or gave no answer for these values."""


@functools.lru_cache(maxsize=1024)
def _program(text: str) -> Any:  # the library types its programs loosely
    if len(text) > LONGEST:
        raise ConditionError(f"it has {len(text)} characters, and {LONGEST} are allowed")
    if len(_MACRO.findall(text)) > MOST_MACROS:
        raise ConditionError(f"it uses more than {MOST_MACROS} of all, exists, exists_one, map and filter")
    try:
        import cel  # noqa: PLC0415 - an extra, and half of a command's time to import
    except ModuleNotFoundError as error:
        raise UsageError(
            "conditions need the package that evaluates them", next_step="pip install 'holdfast[rules]'"
        ) from error
    try:
        return cel.compile(text)
    except ValueError as error:
        raise ConditionError(" ".join(str(error).split())[:200]) from error


def steps_used(text: str) -> frozenset[str]:
    """Parse a condition; the steps whose results it uses. Raises `ConditionError`."""
    unknown = sorted(set(_program(text).variables()) - {"results", "input"})
    if unknown:
        raise ConditionError(f"it uses {', '.join(unknown)}; there are: results, input")
    return frozenset(dotted or quoted for dotted, quoted in _USED.findall(text))


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Whether the condition holds for these values. Raises `ConditionError` where that has no answer."""
    if len(repr(values)) > LARGEST:
        raise ConditionError(f"{text!r} was given more than {LARGEST} characters of values")
    try:
        answer = _program(text).execute(dict(values))
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConditionError(f"{text!r} has no answer here: {error}") from error
    if not isinstance(answer, bool):
        raise ConditionError(f"{text!r} gave {answer!r}, which is neither true nor false")
    return answer
