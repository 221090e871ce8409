"""Accounts and tokens in the ledger: nothing is overwritten, the last word counts, no secret is kept."""

import asyncio

import pytest

from beforehand.errors import UsageError
from beforehand_console.auth.accounts import AccountNote, every_account
from beforehand_console.auth.authorize import Grant, may
from beforehand_console.auth.passwords import LONGEST, SHORTEST, Passwords
from beforehand_console.auth.tokens import TokenNote, every_token
from tests.unit.console.auth.keeping import Drawn, House, opened

DAY_MS = 86_400_000


def test_an_account_is_what_was_said_last():
    async def told() -> None:
        house = await opened()
        await house.person("ben", Grant("answerer", ("refund",)))
        await house.accounts.change("ben", AccountNote("role", "anna", grants=(Grant("operator"),)))
        ben = await house.accounts.change("ben", AccountNote("disable", "anna", why="left"))
        assert (ben.grants, ben.disabled) == ((Grant("operator"),), True)
        assert not may(ben.principal("password"), "look")
        ben = await house.accounts.change("ben", AccountNote("enable", "anna"))
        assert may(ben.principal("password"), "order")
        assert len(await house.journal.entries("accounts/ben")) == 4, "each word is kept"
        await house.person("anna")
        assert [one.name for one in await every_account(house.journal)] == ["anna", "ben"]

    asyncio.run(told())


def test_a_name_is_given_once():
    async def told() -> None:
        house = await opened()
        await house.person("ben", Grant("viewer"))
        with pytest.raises(UsageError, match="already"):
            await house.accounts.add("ben", [Grant("admin")], by="ben")
        found = await house.accounts.known("ben")
        assert found.grants == (Grant("viewer"),)
        with pytest.raises(UsageError, match="does not exist"):
            await house.accounts.change("eve", AccountNote("enable", "eve"))
        assert await house.accounts.find("eve") is None

    asyncio.run(told())


@pytest.mark.parametrize(
    "name", ["", "Ben", "b n", "ben/", "../x", "be\u200bn", "b\u0435n", "-ben", "x" * 65, "ben\n", "ben\0"]
)
def test_a_name_that_could_be_taken_for_another_is_refused(name: str):
    async def told() -> None:
        house = await opened()
        with pytest.raises(UsageError, match="cannot name"):
            await house.accounts.add(name, [Grant("admin")], by="root")
        assert await house.accounts.find(name) is None
        assert await house.journal.entries("accounts/") == []

    asyncio.run(told())


@pytest.mark.parametrize("grants", [[], [Grant("admin", ("refund",))], [Grant("viewer"), Grant("admin", (), ("eu",))]])
def test_roles_that_cannot_be_are_refused(grants: list[Grant]):
    async def told() -> None:
        house = await opened()
        with pytest.raises(UsageError):
            await house.accounts.add("ben", grants, by="root")
        await house.person("eve", Grant("viewer"))
        with pytest.raises(UsageError):
            await house.accounts.change("eve", AccountNote("role", "root", grants=tuple(grants)))
        assert (await house.accounts.known("eve")).grants == (Grant("viewer"),)

    asyncio.run(told())


# --- passwords -------------------------------------------------------------------------------------------------------


def test_a_password_is_kept_as_a_salted_hash_and_fits_in_every_form():
    house, secret = House(), f"{Drawn().token()}é"
    first, second = (house.passwords.hashed(secret, "ben") for _ in range(2))
    assert first != second
    assert first.startswith("$argon2id$")
    assert secret not in first
    assert house.passwords.fits(first, secret)
    assert house.passwords.fits(first, secret.replace("é", "e\u0301"))
    assert not house.passwords.fits(first, secret + "x")
    assert not house.passwords.fits(first, "")


def test_what_was_never_set_takes_the_same_comparison_and_never_fits():
    house = House()
    assert not house.passwords.fits("", "no account has this password"), "the hash for nobody is nobody's"
    assert house.hasher.compared == 1
    assert not house.passwords.fits("no hash at all", "no account has this password")


def test_a_book_is_not_hashed_for_a_stranger():
    house = House()
    kept = house.passwords.hashed("x" * 100 + "abcdef", "ben")
    assert not house.passwords.fits(kept, "y" * (LONGEST + 1))
    assert (house.hasher.compared, house.hasher.longest) == (1, 0)


def test_how_long_a_password_is_at_least_and_at_most():
    house, signs = House(), "abcdefghijklm"
    assert house.passwords.hashed(signs[:SHORTEST], "ben")
    assert house.passwords.hashed("abcde" + "a" * (LONGEST - 5), "ben")
    for wrong in (signs[: SHORTEST - 1], "abcde" + "a" * (LONGEST - 4), "abcd" * 4):
        with pytest.raises(UsageError):
            house.passwords.hashed(wrong, "ben")


@pytest.mark.parametrize(
    "weak",
    ["", "short", "a" * SHORTEST, "abababababababab", "benjaminbenjamin", "é" * 1024, "not text \udc80\udc81 at all"],
)
def test_a_password_that_is_soon_guessed_is_refused_without_being_repeated(weak: str):
    with pytest.raises(UsageError) as refused:
        House().passwords.hashed(weak, "benjamin")
    assert not weak or weak not in str(refused.value)


def test_the_library_is_used_as_it_comes():
    hashed = Passwords().hashed(Drawn().token(), "ben")
    assert hashed.startswith("$argon2id$v=19$m=65536,t=3,p=4$")


# --- tokens ----------------------------------------------------------------------------------------------------------


def note(house: House, *limits: Grant, days: int = 1) -> TokenNote:
    return TokenNote("add", "anna", "ben", limits, house.now.ms + days * DAY_MS, "a script")


def test_a_token_is_shown_once_and_kept_as_a_digest():
    async def told() -> None:
        house = await opened()
        await house.person("ben", Grant("operator"))
        secret, token = await house.tokens.add(note(house, Grant("viewer")), house.rng)
        assert len(secret) == 3 + 64
        stored = repr(await house.journal.entries("tokens/")) + repr(token)
        assert secret not in stored
        assert secret[3:] not in stored
        principal = await house.tokens.principal(secret, house.now.ms)
        assert principal is not None
        assert (principal.name, principal.via, principal.session) == ("ben", "token", token.id)
        assert (may(principal, "look"), may(principal, "answer")) == (True, False)

    asyncio.run(told())


def test_a_token_may_no_more_than_its_account_may_now():
    async def told() -> None:
        house = await opened()
        await house.person("ben", Grant("operator"))
        secret, _ = await house.tokens.add(note(house), house.rng)
        await house.accounts.change("ben", AccountNote("role", "anna", grants=(Grant("viewer"),)))
        principal = await house.tokens.principal(secret, house.now.ms)
        assert principal is not None
        assert not may(principal, "order")
        await house.accounts.change("ben", AccountNote("disable", "anna"))
        assert await house.tokens.principal(secret, house.now.ms) is None
        with pytest.raises(UsageError, match="disabled"):
            await house.tokens.add(note(house), house.rng)

    asyncio.run(told())


def test_a_token_ends_and_can_be_revoked_by_its_name():
    async def told() -> None:
        house = await opened()
        await house.person("ben", Grant("operator"))
        (short, _), (long, kept) = [await house.tokens.add(note(house, days=days), house.rng) for days in (1, 9)]
        house.now.pass_by(days=1)
        assert await house.tokens.principal(short, house.now.ms) is None
        assert await house.tokens.principal(long, house.now.ms) is not None
        assert (await house.tokens.revoke(kept.id[:6], by="anna")).revoked
        assert await house.tokens.principal(long, house.now.ms) is None
        assert [one.revoked for one in await every_token(house.journal, "ben")] == [False, True]
        assert await every_token(house.journal, "anna") == []
        for name in ("", "zz"):
            with pytest.raises(UsageError, match="tokens, not one"):
                await house.tokens.revoke(name, by="anna")

    asyncio.run(told())


@pytest.mark.parametrize("forged", ["", "bh_", "bh_" + "0" * 64, "bh_" + "0" * 63, "../tokens", "bh_" + "é" * 64])
def test_what_is_no_token_opens_nothing(forged: str):
    async def told() -> None:
        house = await opened()
        await house.person("ben")
        secret, _ = await house.tokens.add(note(house), house.rng)
        assert await house.tokens.principal(forged, house.now.ms) is None
        assert await house.tokens.principal(secret.upper(), house.now.ms) is None
        assert await house.tokens.principal(secret + "\n", house.now.ms) is None

    asyncio.run(told())
