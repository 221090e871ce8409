"""What a call says besides its result: facts of the world, and parts of its effect whose end comes later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import msgspec

from holdfast.engine.ends import clean
from holdfast.model import records as r
from holdfast.model.outcome import PARTS_AT_MOST
from holdfast.policies import milliseconds

DAY_MS = 86_400_000


class Said:
    """What one call has said so far. Total: nothing that a tool says after its effect may make that doubtful."""

    __slots__ = ("_facts", "_items")

    def __init__(self) -> None:
        self._facts: dict[str, r.Raw] = {}
        self._items: dict[str, r.PendingItem] = {}

    def report(self, fact: str, value: Any) -> None:
        """Keep a fact; the newest value of a name counts."""
        self._facts[clean(fact)] = _stored(value)

    def await_item(self, item: str, within: timedelta, key: str, every: timedelta | None, about: object = ()) -> None:
        """Keep a part whose end comes later; said again, the newest word counts."""
        name = clean(item) or "the rest"
        if name in self._items or len(self._items) < PARTS_AT_MOST:
            self._items[name] = r.PendingItem(name, clean(key), _ms(within, DAY_MS), _ms(every, 0), _named(about))

    @property
    def facts(self) -> tuple[r.Reported, ...]:
        """The facts as they are recorded."""
        return tuple(r.Reported(name, value) for name, value in self._facts.items())

    def added_to(self, end: r.End) -> r.End:
        """The end of the call with what it said. Only what returned has parts that are still to come."""
        items = tuple(self._items.values()) if end.kind == "returned" else ()
        return msgspec.structs.replace(end, facts=self.facts, pending=items)


def _ms(span: object, otherwise: int) -> int:
    """A duration as milliseconds; `otherwise` for what is none."""
    return max(0, milliseconds(span)) if isinstance(span, timedelta) else otherwise


def _named(about: object) -> tuple[str, ...]:
    """What a part is about: names of parameters, or one text that is the thing itself."""
    parts = cast("tuple[object, ...]", about) if isinstance(about, (tuple, list)) else (about,)
    return tuple(name for name in (clean(part) for part in parts if isinstance(part, str)) if name)


def _stored(value: Any) -> r.Raw:
    try:
        return r.Raw(msgspec.json.encode(value, enc_hook=str))
    except Exception:  # noqa: BLE001 - writing it out runs code of somebody else's making; the effect is done all the same
        return r.Raw(msgspec.json.encode(clean(value)))
