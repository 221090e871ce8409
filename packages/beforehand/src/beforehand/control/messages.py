"""Messages to a run: their contents, and the runs that accept them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.commands import Applied
from beforehand.engine.exceptions.call_end import storable
from beforehand.errors import UsageError
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.model.ids import NAME_LIMIT, can_name
from beforehand.model.shell import to_type

LONGEST: Final = 4000
"""Largest number of characters in a message: it is given to models, and shown."""


def message_from(text: str, by: str, facts: Mapping[str, Any], *, stop: bool) -> r.MessageReceived:
    """The message as it is recorded. Raises `UsageError` for an empty message, or an invalid fact."""
    if not (text or facts or stop):
        raise UsageError("the message is empty: it has neither text nor facts", next_step='beforehand tell RUN "..."')
    if len(text) > LONGEST:
        raise UsageError(
            f"a message has at most {LONGEST:,} characters",
            next_step="shorten it, and say in it where the rest can be read",
        )
    content = storable(text) or ("stop" if stop else "a fact was corrected")
    return r.MessageReceived(text=content, by=by, facts=tuple(_fact(*item) for item in facts.items()), stop=stop)


def _fact(name: str, value: Any) -> r.Reported:
    if not can_name(name):
        raise UsageError(
            f"{name[:NAME_LIMIT]!r} cannot name a fact",
            next_step=f"use 1 to {NAME_LIMIT} printable characters without / ~ and #",
        )
    try:
        return r.Reported(name, r.Raw(msgspec.json.encode(value)))
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"the value of {name} has no JSON form: {error}", next_step="give plain values") from error


def with_end_noted(applied: Applied, row: RunRow) -> Applied:
    """The result of a message; a run that ended meanwhile has it on record, and its code does not receive it."""
    if row.status in {"completed", "undone"}:
        return replace(applied, note="the run ended before its code received this")
    return applied


def checked_accepts_message(row: RunRow) -> None:
    """Refuse a message that no code will ever receive. Raises `UsageError`."""
    if row.status in {"completed", "undone"}:
        raise UsageError(
            f"run {row.run} is {row.status}: it no longer accepts messages", next_step=to_type("show", row.run)
        )
