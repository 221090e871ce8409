"""A limit as a commit judges it, whatever declares it."""

from __future__ import annotations

import msgspec


class CellLimit(msgspec.Struct, frozen=True, gc=False):
    """One limit that a call is under: how many are under way at once, and how far apart they begin.

    `name` is that of its cells. Without `at_once` any number is under way, with `apart_ns` 0 they begin at any time; up
    to `burst` begin together after a pause. `units` is how much the call counts under the rate.
    """

    name: str
    at_once: int | None = None
    apart_ns: int = 0
    burst: int = 1
    units: int = 1
