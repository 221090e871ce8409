"""Heads: the state of a whole journal in two numbers and two hashes, signed so that it can be kept elsewhere.

The log of a journal is two tables that only grow, records and ledger entries. Each is numbered from 1 without gaps, and
its hash covers every row in the order of the numbers. A head that is kept outside the journal therefore shows every
later change, removal or insertion before it, and a journal that has become shorter. Pure: rows and keys in, hashes out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

SHORTEST_KEY: Final = 32
_PURPOSE: Final = b"beforehand/1/head\0"  # what a signature is for: the key signs nothing else
_KEY_ID: Final = 12


class Head(msgspec.Struct, frozen=True):
    """The numbers of the last record and the last ledger entry, and the hashes in hex over all up to them."""

    records: int = 0
    entries: int = 0
    records_hash: str = ""
    entries_hash: str = ""


class SignedHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """A head as it is kept outside: of which journal, from when, and by which key it is signed.

    `key` identifies the key without revealing it. `signature` is HMAC-SHA256 in hex over all other fields.
    """

    namespace: str
    incarnation: str
    at_ms: int
    head: Head
    key: str = ""
    signature: str = ""


def first_head(namespace: str, secret: bytes) -> Head:
    """The head of an empty journal. It depends on the journal's secret, so a replaced secret changes every head."""
    root = b"\0".join((b"beforehand/1/log", namespace.encode(), hashlib.sha256(secret).digest()))
    return Head(0, 0, _start(root, b"records"), _start(root, b"entries"))


def _start(root: bytes, table: bytes) -> str:
    return hashlib.sha256(root + b"\0" + table).hexdigest()


def over_records(before: str, rows: Iterable[tuple[int, int, int, int, bytes]]) -> str:
    """The hash after these rows: number, run, seq, token, and the hash that chains the row to its run."""
    value, sha256 = bytes.fromhex(before), hashlib.sha256
    for number, run, seq, token, digest in rows:
        value = sha256(b"%b%d %d %d %d %b" % (value, number, run, seq, token, digest)).digest()
    return value.hex()


def over_entries(before: str, rows: Iterable[tuple[int, bytes]]) -> str:
    """The hash after these rows: number, and the hash that chains the entry to its stream."""
    value, sha256 = bytes.fromhex(before), hashlib.sha256
    for number, digest in rows:
        value = sha256(b"%b%d %b" % (value, number, digest)).digest()
    return value.hex()


def sign(head: SignedHead, key: str) -> SignedHead:
    """The head with the id of `key` and the signature by it."""
    named = msgspec.structs.replace(head, key=key_id(key), signature="")
    return msgspec.structs.replace(named, signature=_mac(named, key))


def is_signed(head: SignedHead, keys: Sequence[str]) -> bool:
    """True if one of `keys` made the signature."""
    plain = msgspec.structs.replace(head, signature="")
    return any(hmac.compare_digest(_mac(plain, key), head.signature) for key in keys if key_id(key) == head.key)


def key_id(key: str) -> str:
    """A short public name of a key."""
    return hashlib.sha256(_PURPOSE + b"id\0" + key.encode()).hexdigest()[:_KEY_ID]


def line_of(head: SignedHead) -> str:
    """The head as one line of JSON."""
    return msgspec.json.encode(head).decode()


def _mac(head: SignedHead, key: str) -> str:
    return hmac.new(key.encode(), _PURPOSE + msgspec.json.encode(head), hashlib.sha256).hexdigest()
