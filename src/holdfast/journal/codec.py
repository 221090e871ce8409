"""Records to JSON text and back. The only place that knows how they are spelled on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Union

import msgspec

from holdfast.errors import JournalError
from holdfast.model.records import Record

_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Union[Record])  # noqa: UP007  # a run-time union of an alias


encode: Final[Callable[[Record], bytes]] = msgspec.json.Encoder().encode
"""One JSON object in UTF-8, without spaces."""


def decode(body: bytes) -> Record:
    """The record of a stored body. Raises `JournalError` for what this version does not know."""
    return decode_all((body,))[0]


def decode_all(bodies: Iterable[bytes]) -> list[Record]:
    """The records of stored bodies, in order. Raises `JournalError` as `decode` does."""
    body = b""
    records: list[Record] = []
    try:
        for body in bodies:
            records.append(_DECODER.decode(body))
    except (msgspec.MsgspecError, ValueError) as error:
        kind = body[:80].decode("utf-8", "replace")
        raise JournalError(
            f"a record cannot be read: {error} ({kind}...)",
            next_step="open it with the version that wrote it; `holdfast verify` shows whether it was changed",
        ) from error
    return records
