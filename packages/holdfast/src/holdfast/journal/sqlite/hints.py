"""Hints on SQLite: losable notes that all processes share, replaced by compare-and-set."""

from __future__ import annotations

from holdfast.journal.sqlite.driver import Database


def get(database: Database, name: str) -> bytes | None:
    found = database.rows("select cast(body as blob) from hint where name = ?", (name,))
    if not found:
        return None
    ((body,),) = found
    assert isinstance(body, bytes)
    return body


def below(database: Database, prefix: str) -> dict[str, bytes]:
    """The hints whose names begin with `prefix`."""
    found = database.rows(
        "select name, cast(body as blob) from hint where substr(name, 1, ?) = ?", (len(prefix), prefix)
    )
    return {str(name): body for name, body in found if isinstance(body, bytes)}


def put(database: Database, name: str, body: bytes, previous: bytes | None) -> bool:
    """Replace the hint if it still is `previous`."""
    if previous is None:
        changed = database.change(
            "insert into hint (name, body) values (?, cast(? as text)) on conflict (name) do nothing", (name, body)
        )
    else:
        changed = database.change(
            "update hint set body = cast(? as text) where name = ? and body = cast(? as text)", (body, name, previous)
        )
    return changed == 1
