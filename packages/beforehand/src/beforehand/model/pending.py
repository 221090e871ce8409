"""The subject of a call: while something is pending about a thing, a further call about that thing is not sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from beforehand.model.canonical.encode import canonical, digest
from beforehand.model.contract import Contract
from beforehand.model.ids import stream
from beforehand.model.tool_spec import ToolSpec

FREE_TEXT: Final = frozenset({
    "body", "caption", "comment", "content", "description", "html", "markdown", "message", "note", "prompt", "reason",
    "subject", "summary", "text", "title", "wording",
})  # fmt: skip
"""The names that are taken for free text in a tool that declares neither its subject nor its free text.

Without them, such a tool sends the same mail again in other words. `tools --lint` reports each tool that depends on
them.
"""
LITERAL: Final = ("",)
"""A placeholder for the names of parameters where a thing was named by its own text."""
WAYS: Final = "pending-by/"
"""How the ledger streams of ways begin."""
_VALUES: Final = 100


class Subject(msgspec.Struct, frozen=True):
    """The parameters that identify the subject of a call, `names`, and those that hold `free_text`.

    `named` are those that tell calls apart: `names`, and all that a clause or the title names. With `guessed`, nothing
    declares which of the parameters identify it.
    """

    names: tuple[str, ...]
    free_text: frozenset[str]
    named: frozenset[str]
    guessed: bool


def subject_of(contract: Contract, spec: ToolSpec, computed: frozenset[str]) -> Subject:
    """The subject of the calls of a tool: what a clause names, else what its title names, else all its parameters.

    Of the last two, free text does not count, unless there is nothing else. `computed` are the parameters from which
    a handler computes the business key.
    """
    about = contract.pending.about if contract.pending is not None else ()
    declared = about or contract.claim or (contract.once.parameters if contract.once is not None else ())
    parameters, titled, free_text = tuple(spec.types), spec.titled, spec.free_text
    by_name = frozenset[str]() if free_text else FREE_TEXT.intersection(parameters)
    open_to_names = bool(by_name.intersection(titled)) if titled else len(parameters) > 1
    guessed = open_to_names and not (declared or free_text or computed)
    free_text = free_text or by_name
    choices = (tuple(name for name in names if name not in free_text) for names in (titled, parameters))
    names = declared or next(filter(None, choices), titled or parameters)
    return Subject(names, free_text, frozenset((*names, *contract.claim, *computed, *titled)), guessed)


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
