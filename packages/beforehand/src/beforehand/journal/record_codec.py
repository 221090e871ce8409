"""Records to JSON text and back. Only this module knows their form on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Union

import msgspec

from beforehand.errors import ArgumentError, Unreadable
from beforehand.model.records import Record, kind_of

_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Union[Record])  # noqa: UP007  # a run-time union of an alias
_ENCODER: Final = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """One JSON object in UTF-8, without spaces. Raises `ArgumentError` for a record that `decode` would refuse.

    msgspec checks the types of what it decodes, and not of what code passes: without the reading back, a value of
    another type would be stored and its run could never be read again. It costs about half a microsecond.
    """
    try:
        body = _ENCODER.encode(record)
        _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ArgumentError(
            f"a record {kind_of(record)} cannot be stored: {error}",
            next_step="nothing was stored; give values of the declared types, finite numbers and valid text",
        ) from error
    return body


def decode(body: bytes) -> Record:
    """The record of a stored body. Raises `Unreadable` for one that this version does not know."""
    return decode_all((body,))[0]


def prefixes_of(*kinds: type[msgspec.Struct]) -> tuple[bytes, ...]:
    """How the stored bodies of these kinds begin: `body.startswith` tells them from others without decoding any."""
    return tuple(b'{"kind":"%s"' % str(kind.__struct_config__.tag).encode() for kind in kinds)


def decode_all(bodies: Iterable[bytes]) -> list[Record]:
    """The records of stored bodies, in order. Raises `Unreadable` as `decode` does."""
    body = b""
    records: list[Record] = []
    try:
        for body in bodies:
            records.append(_DECODER.decode(body))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        kind = body[:80].decode("utf-8", "replace")
        raise Unreadable(
            f"a record cannot be read: {error} ({kind}...)",
            known="only its run is affected",
            next_step="open it with the version that wrote it; `beforehand verify` shows whether it was changed",
        ) from error
    return records
