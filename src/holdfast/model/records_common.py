"""What every record has: two clocks, and the name of its kind in its JSON."""

from __future__ import annotations

import msgspec

Raw = msgspec.Raw
NOTHING = Raw(b"null")


class Stamped(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag=str, kw_only=True):
    """`at` is the wall clock in milliseconds, for people; `up` is the journal's clock, for windows."""

    at: int = 0
    up: int = 0
