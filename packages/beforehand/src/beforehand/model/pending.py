"""The subject of a call: while something is pending about a thing, a further call about that thing is not sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from beforehand.model.canonical.encode import canonical, digest
from beforehand.model.contract import Contract
from beforehand.model.ids import stream

FREE_TEXT: Final = frozenset({
    "body", "caption", "comment", "content", "description", "html", "markdown", "message", "note", "prompt", "reason",
    "subject", "summary", "text", "title", "wording",
})  # fmt: skip
"""The names of parameters that hold wording: they do not say what a call is about, unless nothing else does."""
LITERAL: Final = ("",)
"""A placeholder for the names of parameters where a thing was named by its own text."""
WAYS: Final = "pending-by/"
"""How the ledger streams of ways begin."""
_VALUES: Final = 100


def names_of(contract: Contract, parameters: Iterable[str], about: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The parameters that say what a call is about.

    Named with the pending part, by the tool's `pending=`, `claim=` or `once=`; else all that hold no wording; else all.
    """
    known = tuple(parameters)
    if about:
        return about if set(about) <= set(known) else LITERAL
    declared = contract.pending.about if contract.pending is not None else ()
    once = contract.once.parameters if contract.once is not None else ()
    return declared or contract.claim or once or tuple(name for name in known if name not in FREE_TEXT) or known


def thing(secret: bytes, names: tuple[str, ...], arguments: Mapping[str, Any]) -> str:
    """The digest of what a call with these arguments is about, by these parameters."""
    return digest(secret, canonical({name: arguments[name] for name in names if name in arguments}))


def literal(secret: bytes, text: str) -> str:
    """The digest of a thing that was named by its own text."""
    return digest(secret, canonical({"": text}))


def literals(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts in arguments that may name a thing: those that are not wording, alone or in a list."""
    found: dict[str, None] = {}
    for name, value in arguments.items():
        if name in FREE_TEXT:
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
