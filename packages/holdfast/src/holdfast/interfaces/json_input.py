"""JSON from outside, decoded. Text that is nested deeper than any reader goes is a decode error like others.

The decoder recurses, and raises `RecursionError` at a depth that depends on the stack of its caller: what is accepted
here at one depth could not be read there at another. So the depth has a limit of its own.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

DEEPEST: Final = 128
# A text in quotes, also one without an end, or one bracket. Possessive, so that hostile text is read once.
_PARTS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{])|[\]}]', re.DOTALL)
T = TypeVar("T")


def decode_json(text: bytes | str, kind: type[T] | Any = Any) -> T:
    """`text` as `kind`. Raises `msgspec.DecodeError`, and `ValueError` for text that cannot be encoded."""
    raw = text.encode() if isinstance(text, str) else text
    if _is_too_deep(raw):
        raise msgspec.DecodeError(f"it is nested more than {DEEPEST} deep")
    decoded: T = msgspec.json.decode(raw, type=kind)
    return decoded


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for part in _PARTS.finditer(raw):
        if part[1]:
            depth += 1
        elif part[0] in {b"]", b"}"}:
            depth -= 1
        if depth > DEEPEST:
            return True
    return False
