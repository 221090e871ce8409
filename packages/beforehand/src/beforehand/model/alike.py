"""Suggests what a mistyped name may have meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is spelled most like this one; empty where none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

    return next(iter(get_close_matches(name, known, 1)), "")


def unknown_fields(fields: Iterable[object], known: Collection[str], where: str) -> Iterator[str]:
    """A fault for each field that does not exist. `where` goes before its name: `queues.mail.`."""
    for name in fields:
        if name not in known:
            near = nearest(str(name), known)
            meant = f"did you mean {near}?" if near else f"choose from: {', '.join(known)}"
            yield f"{where}{str(name)[:40]}: unknown field; {meant}"
