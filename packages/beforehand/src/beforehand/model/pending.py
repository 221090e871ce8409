"""Pending things: while something is pending about a thing, a further call about that thing is not sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

from beforehand.model.canonical.encode import canonical, digest
from beforehand.model.ids import stream

LITERAL: Final = ("",)
"""A placeholder for the names of parameters where a thing was named by its own text."""
WAYS: Final = "pending-by/"
"""How the ledger streams of ways begin."""
_VALUES: Final = 100


def thing(secret: bytes, names: tuple[str, ...], arguments: Mapping[str, Any]) -> str:
    """The digest of what a call with these arguments is about, by these parameters."""
    return digest(secret, canonical({name: arguments[name] for name in names if name in arguments}))


def literal(secret: bytes, text: str) -> str:
    """The digest of a thing that was named by its own text."""
    return digest(secret, canonical({"": text}))


def literals(arguments: Mapping[str, Any], free_text: Collection[str]) -> tuple[str, ...]:
    """The texts in arguments that may name a thing: those that are not free text, alone or in a list."""
    found: dict[str, None] = {}
    for name, value in arguments.items():
        if name in free_text:
            continue
        parts = cast("Iterable[object]", value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
        found.update((part, None) for part in parts if isinstance(part, str) and part)
    return tuple(found)[:_VALUES]


def thing_stream(tool: str, about: str) -> str:
    """The ledger stream of what is pending about one thing."""
    return stream("pending", tool, about)


def ways_stream(tool: str) -> str:
    """The ledger stream that names by which parameters something of this tool was ever pending."""
    return stream("pending-by", tool)
