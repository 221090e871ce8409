"""Signed links into the inbox: for one item as it was asked, for one recipient, until one moment, for one answer.

A link says where to look. It is not an identity: its reader signs in, and opening it never gives an answer, so that a
mail scanner which fetches every link does no harm. Its first answer is recorded in the ledger; another one through
the same link is refused.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

import msgspec
from itsdangerous import BadData, URLSafeSerializer

from beforehand.errors import BeforehandError, UsageError
from beforehand.inspect.signing_keys import SigningKeys, load_keys
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import Identity, Journal, JournalReads, LedgerEntry, Post

PATH: Final = "/links/"
VARIABLE: Final = "BEFOREHAND_LINK_KEY"
SHORTEST: Final = 32
_SALT: Final = "beforehand.link.item.1"  # what a signature is for: no other text that the key signs is a link
_USED: Final = "links/"
_LONGEST: Final = 2048


class LinkRefused(BeforehandError):
    """A link that is refused: forged, ended, used, or about something that has changed since."""


class Link(msgspec.Struct, frozen=True):
    """The content of a link. `until_ms` is a wall clock; `id` names this link, so that its use can be recorded.

    `digest` is of exactly what was asked when it was sent; `to` is whom it was sent to.
    """

    item: str
    digest: str
    to: str
    until_ms: int
    id: str


def link_id(notice: str, item: str) -> str:
    """The id of the link to this item in this notice: every try of the notice has the same."""
    return hashlib.sha256(f"{notice}\0{item}".encode()).hexdigest()[:24]


def make_link(base_url: str, keys: SigningKeys, link: Link) -> str:
    """The address to send. Raises `UsageError` for an invalid base address."""
    return f"{checked_base(base_url)}{PATH}{_signer(keys).dumps(msgspec.to_builtins(link))}"


def read_link(token: str, keys: SigningKeys, *, now_ms: int) -> Link:
    """Read a link. `token` is the last part of its path. Raises `LinkRefused` for one that is not valid now.

    This is enough to open the page of an item; `use_link` comes with the answer.
    """
    if len(token) > _LONGEST or not token.isascii():
        raise LinkRefused("this is not a link of this inbox", next_step="open the inbox and look there")
    try:
        link = msgspec.convert(_signer(keys).loads(token), Link)
    except (BadData, msgspec.ValidationError, ValueError) as error:
        raise LinkRefused(
            "this link has no valid signature, or its key is no longer used",
            next_step="open the inbox and look there",
        ) from error
    if link.until_ms <= now_ms:
        raise LinkRefused("this link has expired", next_step="open the inbox and look there")
    return link


async def use_link(journal: Journal, link: Link, *, by: str) -> None:
    """Record that an answer is given through this link, before it is given. Raises `LinkRefused` the second time."""
    entry = await journal.commit(use_of(link, by=by))
    if not entry.fresh:
        raise _used(entry)


def _used(entry: LedgerEntry) -> LinkRefused:
    first = read(entry, dict[str, str])["by"]
    return LinkRefused(
        f"an answer was given through this link before, by {first}",
        known="a link takes one answer",
        next_step="open the inbox and look there",
    )


def use_of(link: Link, *, by: str) -> Post:
    """The ledger entry that uses a link up: in the commit of its answer, so that a refused answer uses up nothing."""
    if not by:
        raise UsageError("an answer needs the name of a person", next_step="sign in first")
    return Post(_USED + link.id, "used", written({"by": by, "item": link.item}))


async def checked_unused(journal: JournalReads, link: Link) -> None:
    """Refuse a link through which an answer was given. Raises `LinkRefused`."""
    for entry in await journal.entries(_USED + link.id):
        raise _used(entry)


def checked_base(base_url: str) -> str:
    """The address of the inbox, without a slash at its end. Raises `UsageError`."""
    plain = base_url.isascii() and base_url.isprintable() and not set(base_url) & set(" \"'<>#?@\\")
    if not plain or not base_url.startswith(("https://", "http://")) or not base_url.partition("://")[2]:
        raise UsageError(
            f"{base_url!r} is not the address of an inbox", next_step="give one like https://desk.example.com"
        )
    return base_url.rstrip("/")


# --- where the keys are kept -------------------------------------------------------------------------------


KEYS: Final = ".linkkeys"
"""The file beside a journal that keeps its keys unless they are given; for the journal's owner alone."""


def keys_of(identity: Identity) -> SigningKeys | None:
    """The keys as every process finds them: in the variable BEFOREHAND_LINK_KEY, else beside the journal, else nowhere.

    Raises `UsageError` for invalid keys.
    """
    if value := os.environ.get(VARIABLE, ""):
        return given_keys(value)
    path = identity.sidecar(KEYS)
    return None if path is None else load_keys(path)


def given_keys(value: str) -> SigningKeys:
    """The keys from a secret that was given: several are separated by commas, the newest first. Raises `UsageError`."""
    keys = tuple(one.strip() for one in value.split(",") if one.strip())
    if not keys or min(len(one) for one in keys) < SHORTEST:
        raise UsageError("a link key is too short", next_step=f"give at least {SHORTEST} random characters")
    return SigningKeys(keys)


def _signer(keys: SigningKeys) -> URLSafeSerializer:
    if not keys.keys:
        raise UsageError(
            "no link-signing key configured", next_step="set Reach(link_key=...), or use a journal that is a file"
        )
    return URLSafeSerializer([*reversed(keys.keys)], salt=_SALT, signer_kwargs={"digest_method": hashlib.sha256})
