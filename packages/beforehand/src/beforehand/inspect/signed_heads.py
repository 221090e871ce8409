"""Signed heads: made from a journal, read back from a file that was kept elsewhere, and posted to webhook endpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from beforehand.engine.engine import Engine
from beforehand.engine.environment import Rng
from beforehand.errors import JournalDistrusted, UsageError
from beforehand.inspect.signing_keys import SigningKeys, first_keys, load_keys
from beforehand.journal.entry_codec import written
from beforehand.journal.port import Identity, JournalReads, Post
from beforehand.model.heads import SHORTEST_KEY, SignedHead, is_signed, sign
from beforehand.model.webhooks import OUTBOX, Notice

VARIABLE: Final = "BEFOREHAND_HEAD_KEY"
KEYS: Final = ".headkeys"
"""The file beside a journal that keeps the keys which sign its heads, unless they are given."""


class KeptHead(msgspec.Struct, frozen=True):
    """A head from a file, and the number of its line."""

    line: int
    signed: SignedHead

    @property
    def origin(self) -> str:
        """Its name in a sentence."""
        at = datetime.fromtimestamp(self.signed.at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"the head of {at}, line {self.line},"


class _Posted(msgspec.Struct):
    """The body of a webhook, as an endpoint may have stored it."""

    data: SignedHead


async def signed_head(journal: JournalReads, identity: Identity, at_ms: int, keys: Sequence[str]) -> SignedHead:
    """The head of the journal as it is now, signed with the first key. Raises `JournalDistrusted`."""
    if identity.trust == "distrustful":
        raise JournalDistrusted(
            f"no head is made of a journal that is not trusted: {identity.reason}", next_step="beforehand doctor"
        )
    head = SignedHead(identity.namespace, identity.incarnation, at_ms, await journal.head())
    return sign(head, keys[0]) if keys else head


def head_keys(file: Path | None) -> tuple[str, ...]:
    """The keys that sign heads, newest first: from BEFOREHAND_HEAD_KEY, else from `file` if there is one.

    Raises `UsageError` for a key that is too short or a file that holds none.
    """
    if value := os.environ.get(VARIABLE, ""):
        keys = tuple(one.strip() for one in value.split(",") if one.strip())
        if not keys or min(len(one) for one in keys) < SHORTEST_KEY:
            raise UsageError(
                f"a key in {VARIABLE} is too short", next_step=f"give at least {SHORTEST_KEY} random characters"
            )
        return keys
    found = load_keys(file) if file is not None else None
    return found.keys if found is not None else ()


def own_head_keys(file: Path | None, rng: Rng) -> tuple[str, ...]:
    """The same keys; where there are none, the first is made beside the journal. Raises `UsageError`."""
    if (keys := head_keys(file)) or file is None:
        return keys
    try:
        made: SigningKeys = first_keys(file, rng.token() + rng.token())
    except OSError as error:
        raise UsageError(
            f"the key that signs heads cannot be made at {file}: {error.strerror}", next_step=f"give one in {VARIABLE}"
        ) from error
    return made.keys


def read_heads(path: Path, namespace: str) -> list[KeptHead]:
    """The heads of this journal in a file: one JSON object a line, as printed or as a webhook brought it.

    Heads of other journals are passed over. Raises `UsageError` for a line that holds no head, and where none remains.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", next_step="name a file of heads") from error
    found = [KeptHead(number, _parsed(path, number, line)) for number, line in enumerate(lines, 1) if line.strip()]
    own = [one for one in found if one.signed.namespace == namespace]
    if not own:
        raise UsageError(
            f"{path} has no head of this journal, whose namespace is {namespace}",
            known=f"it has {len(found)} of others",
            next_step="name the file that `beforehand heads` was written to",
        )
    return own


def _parsed(path: Path, number: int, line: bytes) -> SignedHead:
    try:
        return msgspec.json.decode(line, type=SignedHead)
    except msgspec.MsgspecError:
        pass
    try:
        return msgspec.json.decode(line, type=_Posted).data
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}, line {number} is not a signed head: {error}",
            next_step="name a file of lines as `beforehand heads` prints",
        ) from error


def badly_signed(heads: Sequence[KeptHead], keys: Sequence[str]) -> list[KeptHead]:
    """The heads whose signature is not by one of `keys`."""
    return [one for one in heads if not is_signed(one.signed, keys)]


class HeadPosts:
    """Posts the signed head to the outbox, once in `Settings(heads_every_ms=)`, whichever process does it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._done = -1

    async def post(self) -> None:
        """Post the head of this span of time, if an endpoint asks for heads. Raises `BeforehandError`."""
        engine, now = self._engine, self._engine.wall_ms()
        turn = now // engine.settings.heads_every_ms
        if turn == self._done or not engine.outbox.wants("journal.head") or engine.identity.trust == "distrustful":
            return
        keys = own_head_keys(engine.identity.sidecar(KEYS), engine.environment.rng)
        head = await signed_head(engine.journal, engine.identity, now, keys)
        notice = Notice("journal.head", "", "", now, turn=turn, data=msgspec.to_builtins(head))
        await engine.journal.commit(Post(OUTBOX, f"head/{turn}", written(notice)))
        self._done = turn
