"""Titles: one sentence about a call, from a template over its arguments.

A template is a format string whose fields are names of parameters: `"refund {cents} cents to {customer}"`. It is
checked when the tool is declared, and filled with the stored form of the arguments: plain JSON values without what is
redacted or secret. A field reaches no attribute and no item, so there is nothing that a template could call.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection
from typing import Any, Final, cast

from beforehand.model.canonical.plain import hides, plain_arguments
from beforehand.model.errors import ContractError

LONGEST_TEMPLATE: Final = 500
LONGEST_VALUE: Final = 80
"""Characters of one value in a title; the exact arguments are shown beside it."""
LONGEST_TITLE: Final = 200
_SPEC: Final = re.compile(r"([^{}]?[<>=^])?[-+ ]?z?#?0?\d{0,2}[,_]?(\.\d{1,2})?[bdeEfFgGosxX%]?")
_EXAMPLE: Final = 'write a sentence, such as title="refund {cents} cents to {customer}"'


def checked_title(template: object, tool: str, stored: Collection[str]) -> str:
    """Check a template against the parameters that are stored. Raises `ContractError` naming what is wrong."""
    where = f"tool {tool}: title={template!r}"
    if not isinstance(template, str) or not template.strip() or len(template) > LONGEST_TEMPLATE:
        raise ContractError(f"{where} is not a text of 1 to {LONGEST_TEMPLATE} characters", next_step=_EXAMPLE)
    try:
        fields = [(name, spec, as_) for _, name, spec, as_ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ContractError(f"{where}: {error}", next_step=_EXAMPLE) from error
    for name, spec, conversion in fields:
        if name not in stored or conversion or not _SPEC.fullmatch(spec or ""):
            field = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise ContractError(
                f"{where}: {{{field}}} is not a parameter whose value is stored, with at most a format",
                known=f"its stored parameters are: {', '.join(sorted(stored)) or 'none'}",
                next_step=_EXAMPLE,
            )
    return template


def fields_of(template: str) -> tuple[str, ...]:
    """The parameters that a checked template shows, in its order."""
    return tuple(dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(template) if name is not None))


def title_from(template: str, stored: bytes) -> str:
    """The title of a call with these stored arguments; empty if the template does not fit them."""
    try:
        hidden = hides(stored)
        given = {name: _Shown(value, hidden=hidden) for name, value in plain_arguments(stored).items()}
        return _cut(" ".join(template.format_map(given).split()), LONGEST_TITLE)
    except Exception:  # noqa: BLE001 - a title is a convenience: the call is made without it
        return ""


class _Shown:
    """A value in a title. Of a plain list where something is hidden, nothing is shown: it would name too few."""

    def __init__(self, value: object, *, hidden: bool) -> None:
        self._values = cast("list[object]", value)[:LONGEST_VALUE] if isinstance(value, list) else [value]
        self._vague = hidden and isinstance(value, list)

    def __format__(self, spec: str) -> str:
        if self._vague:
            raise TypeError(spec)
        return _cut(", ".join(format(_scalar(one), spec) for one in self._values), LONGEST_VALUE)


def _scalar(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, str | int | float):
        return value
    raise TypeError(value)  # an object has no readable text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
