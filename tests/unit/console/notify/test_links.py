"""Signed links: for one item as it was asked, for one recipient, until one moment, for one answer."""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from itsdangerous import URLSafeSerializer

from beforehand.errors import UsageError
from beforehand.inspect.signing_keys import first_keys, keep_keys, load_keys
from beforehand_console import Link, LinkRefused, SigningKeys, make_link, read_link, use_link
from beforehand_console.links import checked_unused
from tests.unit.engine.lab import Lab, virtual

BASE = "https://desk.example.com"
LINK = Link("t-A-17/refund#1", "d1", "ann@example.com", 1_000_000, "id1")


def fresh() -> str:
    return os.urandom(32).hex()


KEYS = SigningKeys((fresh(),))


def token(link: Link = LINK, keys: SigningKeys = KEYS) -> str:
    address = make_link(BASE, keys, link)
    assert address.startswith(f"{BASE}/links/")
    return urlsplit(address).path.rpartition("/")[2]


def test_a_link_says_what_was_put_into_it_and_is_safe_in_an_address():
    assert read_link(token(), KEYS, now_ms=999_999) == LINK
    assert token().isascii()
    assert not set(token()) & set("/?#&%+= ")


def test_a_link_ends():
    with pytest.raises(LinkRefused, match="has expired"):
        read_link(token(), KEYS, now_ms=1_000_000)


@pytest.mark.parametrize("change", range(8))
def test_a_link_that_was_changed_anywhere_is_refused(change: int):
    good = token()
    at = change * (len(good) - 2) // 7
    other = "A" if good[at] != "A" else "B"
    with pytest.raises(LinkRefused):
        read_link(good[:at] + other + good[at + 1 :], KEYS, now_ms=0)


@pytest.mark.parametrize("forged", ["", ".", "a.b", "ä" * 10, "x" * 5000, "eyJpdGVtIjoiYSJ9.c2lnbmF0dXJl"])
def test_what_was_never_signed_is_refused(forged: str):
    with pytest.raises(LinkRefused):
        read_link(forged, KEYS, now_ms=0)


def test_what_the_key_signed_for_another_purpose_is_no_link():
    stranger = URLSafeSerializer(KEYS.keys[0], salt="a session")
    with pytest.raises(LinkRefused):
        read_link(stranger.dumps(msgspec.to_builtins(LINK)), KEYS, now_ms=0)
    incomplete = URLSafeSerializer(KEYS.keys[0], salt="a session").dumps({"item": "x"})
    with pytest.raises(LinkRefused):
        read_link(incomplete, KEYS, now_ms=0)


def test_a_link_outlives_one_change_of_the_key_and_no_second_one():
    old = token()
    once = KEYS.rotated(fresh())
    assert read_link(old, once, now_ms=0) == LINK
    assert read_link(token(keys=once), once, now_ms=0) == LINK
    with pytest.raises(LinkRefused):
        read_link(token(keys=once), KEYS, now_ms=0)
    with pytest.raises(LinkRefused):
        read_link(old, once.rotated(fresh()), now_ms=0)


@virtual
async def test_an_answer_is_given_through_a_link_once_and_reading_it_uses_nothing(lab: Lab):
    async with lab.app() as app:
        journal = app.engine.journal
        for _ in range(3):
            read_link(token(), KEYS, now_ms=0)  # as a mail scanner does
        await checked_unused(journal, LINK)
        await use_link(journal, LINK, by="ann")
        with pytest.raises(LinkRefused, match="before, by ann"):
            await checked_unused(journal, LINK)
        with pytest.raises(LinkRefused, match="before, by ann"):
            await use_link(journal, LINK, by="mallory")
        with pytest.raises(UsageError):
            await use_link(journal, LINK, by="")


@pytest.mark.parametrize(
    "base", ["", "desk.example.com", "javascript:alert(1)", "https://a b", "https://x/?a", "https://", 'https://x"y']
)
def test_an_address_that_is_no_inbox_is_refused(base: str):
    with pytest.raises(UsageError):
        make_link(base, KEYS, LINK)


def test_keys_are_made_once_and_are_for_their_owner_alone(tmp_path: Path):
    path = tmp_path / "desk.db.linkkeys"
    assert load_keys(path) is None
    first = first_keys(path, fresh())
    assert first_keys(path, fresh()) == first == load_keys(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keep_keys(path, first.rotated(fresh()))
    assert load_keys(path) != first
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert first.keys[0] not in repr(first)
    path.write_text("no json")
    with pytest.raises(UsageError):
        load_keys(path)


def test_without_a_key_nothing_is_signed():
    with pytest.raises(UsageError, match="no link-signing key"):
        make_link(BASE, SigningKeys(()), LINK)
