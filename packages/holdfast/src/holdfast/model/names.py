"""Normalizes the names of people: names that look alike compare equal, however they were typed."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from holdfast.model.lookalikes import read_as


def plain_name(name: str) -> str:
    """One form for what can be typed in several: case, width and outer spaces say nothing about who somebody is."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def same_person(one: str, other: str) -> bool:
    """Whether two names are one, or look like one: with letters of another script, or signs that are not drawn."""
    return _as_read(one) == _as_read(other)


def _as_read(name: str) -> str:
    if name.isascii():
        return plain_name(name)
    drawn = "".join(sign for sign in name if unicodedata.category(sign) not in {"Cf", "Cc"})
    return plain_name(read_as(plain_name(drawn)))


def is_among(name: str, names: Iterable[str]) -> bool:
    """Whether somebody of that name is among these."""
    return any(same_person(name, other) for other in names)
