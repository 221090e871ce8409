"""Names of people: two that look alike are one person's, however they were typed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable


def plain_name(name: str) -> str:
    """One form for what can be typed in several: case, width and outer spaces say nothing about who somebody is."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def same_person(one: str, other: str) -> bool:
    """Whether two names are one."""
    return plain_name(one) == plain_name(other)


def is_among(name: str, names: Iterable[str]) -> bool:
    """Whether somebody of that name is among these."""
    return any(same_person(name, other) for other in names)
