"""Fields of every record: two clocks, and the name of its kind in its JSON."""

from __future__ import annotations

import msgspec

Raw = msgspec.Raw
NOTHING = Raw(b"null")


class Stamped(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=str, kw_only=True, gc=False):
    """`at` is the wall clock in milliseconds, for people; `up` is the journal's clock, for windows.

    `gc=False`, here and on other values of the hot path: what holds only values is never part of a cycle, and
    the collector, which took an eighth of a busy process's time, can skip it.
    """

    at: int = 0
    up: int = 0


def kind_of(record: Stamped) -> str:
    """The kind of a record, as its JSON names it."""
    return str(record.__struct_config__.tag)
