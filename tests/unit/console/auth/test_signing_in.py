"""Signing in: uniform for every name, limited across restarts and processes, and a session that cannot be planted."""

import asyncio
import secrets
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beforehand.errors import NotAllowed, SignInRefused
from beforehand.journal.port import Identity
from beforehand.webhooks.access_log import network
from beforehand_console.auth.accounts import AccountNote
from beforehand_console.auth.authenticator import WAITING, WRONG, Authenticator
from beforehand_console.auth.authorize import Grant, PermissionScope
from beforehand_console.auth.rate_limits import PER_ADDRESS, PER_NAME, Rate, taken
from beforehand_console.auth.sessions import LASTS_MS, Sessions
from tests import forked
from tests.unit.console.auth.keeping import House, opened

HERE = "192.0.2.7"


def inside(test: Callable[[House, Authenticator, str], Awaitable[None]]) -> None:
    """Run it with anna (admin), ben (answerer of refund), and the password that both have."""

    async def run() -> None:
        house, password = await opened(), secrets.token_hex(12)
        await house.person("anna", password=password)
        await house.person("ben", Grant("answerer", ("refund",)), password=password)
        async with house.authenticator() as authenticator:
            await test(house, authenticator, password)

    asyncio.run(run())


async def refused(authenticator: Authenticator, name: str, password: str, address: str = HERE) -> SignInRefused:
    with pytest.raises(SignInRefused) as no:
        await authenticator.sign_in(name, password, address)
    return no.value


def test_who_knows_the_password_is_in_and_can_leave():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        begun = await authenticator.sign_in("ben", password, HERE)
        assert (begun.principal.name, begun.principal.via) == ("ben", "password")
        assert await authenticator.by_session(begun.secret) == begun.principal
        await authenticator.sign_out(begun.secret, begun.principal)
        assert await authenticator.by_session(begun.secret) is None
        again = await authenticator.sign_in("ben", password, HERE)
        assert again.secret != begun.secret
        assert password not in await house.everything()
        assert begun.secret not in await house.everything()
        assert again.secret not in await house.everything()

    inside(told)


# --- one answer for everything that is wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ben", "nobody", "closed", "keyless", "", "Ben", "../ben", "x" * 5000, "\ud800"])
def test_every_wrong_try_costs_one_comparison_and_is_told_in_the_same_words(name: str):
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        await house.person("closed", password=password)
        await house.accounts.change("closed", AccountNote("disable", "anna"))
        await house.person("keyless")
        house.hasher.compared = 0
        wrong = "not it" if name == "ben" else password
        no = await refused(authenticator, name, wrong)
        assert (no.message, no.retry_after) == (WRONG, 0)
        assert house.hasher.compared == 1

    inside(told)


def test_a_password_in_the_field_of_the_name_is_not_kept():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        await refused(authenticator, password, "")
        assert password not in await house.everything()
        (noted,) = await authenticator.log.read("-")
        assert (noted.access.allowed, noted.access.who, noted.access.address) == (False, "", HERE)

    inside(told)


def test_more_than_can_be_compared_are_turned_away():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        tries = [authenticator.sign_in(f"n{i}", password, f"198.51.100.{i}") for i in range(WAITING + 5)]
        ended = await asyncio.gather(*tries, return_exceptions=True)
        assert all(isinstance(one, SignInRefused) for one in ended)
        busy = [one for one in ended if isinstance(one, SignInRefused) and one.retry_after]
        assert (len(busy), house.hasher.compared) == (5, WAITING)

    inside(told)


# --- how often -------------------------------------------------------------------------------------------------------


def test_guessing_is_limited_by_name_from_wherever_it_comes():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        for i in range(PER_NAME.burst):
            assert (await refused(authenticator, "ben", "wrong", f"198.51.100.{i}")).retry_after == 0
        house.hasher.compared = 0
        late = await refused(authenticator, "ben", password, "203.0.113.1")
        assert (late.message, late.retry_after) == ("too many tries", 60)
        assert house.hasher.compared == 0, "also the right one is not looked at"
        assert (await authenticator.sign_in("anna", password, HERE)).principal.name == "anna"
        house.now.pass_by(seconds=60)
        assert (await authenticator.sign_in("ben", password, HERE)).principal.name == "ben"
        assert (await refused(authenticator, "ben", "wrong")).retry_after == 0, "what was right did not count"
        assert (await refused(authenticator, "ben", "wrong")).retry_after == 60

    inside(told)


def test_guessing_is_limited_by_address_whatever_the_names():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        for i in range(PER_ADDRESS.burst):
            assert (await refused(authenticator, f"n{i}", "wrong")).retry_after == 0
        assert (await refused(authenticator, "ben", password)).retry_after == 6
        assert (await authenticator.sign_in("ben", password, "2001:db8:1:1::1")).principal.name == "ben"
        for i in range(PER_ADDRESS.burst):
            await refused(authenticator, f"m{i}", "wrong", f"2001:db8:1:2::{i}")
        assert (await refused(authenticator, "ben", "wrong", "2001:db8:1:2:ffff::")).retry_after == 6, "one household"
        turned_away = [one for one in await authenticator.log.read("-") if one.access.why == "too many tries"]
        assert len(turned_away) == 2, "recorded once an hour for each address"

    inside(told)


def test_names_that_nobody_has_are_limited_alike():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        for i in range(PER_NAME.burst):
            await refused(authenticator, "nobody", "wrong", f"198.51.100.{i}")
        assert (await refused(authenticator, "nobody", "wrong", "203.0.113.1")).retry_after == 60

    inside(told)


TRIES = """
import asyncio, sys
from beforehand.errors import SignInRefused
from beforehand_console.auth.rate_limits import SignInLimits
from beforehand.journal.sqlite.journal import SqliteJournal

async def passed():
    journal, count = SqliteJournal(sys.argv[1]), 0
    limits = SignInLimits(journal, await journal.open())
    for _ in range(int(sys.argv[2])):
        try:
            await limits.take("ben", "192.0.2.7", 1_000_000)
            count += 1
        except SignInRefused:
            pass
    await journal.close()
    return count

print(asyncio.run(passed()))
"""


def test_processes_and_restarts_share_the_count(journal_path: Path):
    """Two processes over one file at once; then a third that begins after both have ended."""

    def process(tries: int) -> subprocess.Popen[str]:
        return forked.start(["-c", TRIES, str(journal_path), str(tries)], stdout=subprocess.PIPE)

    assert process(0).communicate(timeout=60)[0] == "0\n", "the journal is there"
    both = [process(PER_NAME.burst + 1) for _ in range(2)]
    assert sum(int(one.communicate(timeout=60)[0]) for one in both) == PER_NAME.burst
    assert process(3).communicate(timeout=60)[0] == "0\n"


def test_a_count_that_lies_in_the_future_heals():
    rate = Rate(burst=3, every_ms=1000)
    assert taken(rate, 10**15, 5_000) == (8_000, 1000), "the clock was set back: no longer than the whole allowance"


@given(st.lists(st.integers(0, 3_000), max_size=60))
def test_no_pattern_of_tries_gets_more_than_the_rate(gaps: list[int]):
    rate, whole, now, passed = Rate(burst=3, every_ms=1000), 0, 1_000_000, list[int]()
    for gap in gaps:
        now += gap
        whole, wait = taken(rate, whole, now)
        assert wait <= rate.every_ms
        if not wait:
            passed.append(now)
    for start in passed:
        for length in (1000, 5000, 20_000):
            within = [at for at in passed if start <= at < start + length]
            assert len(within) <= rate.burst + length // rate.every_ms


@pytest.mark.parametrize(
    ("address", "counted"),
    [("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("2001:db8::1%eth0", "2001:db8::/64"), ("", "elsewhere")],
)  # fmt: skip
def test_what_counts_as_one_address(address: str, counted: str):
    assert network(address) == counted


# --- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_that_was_planted_is_not_taken_over():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        planted = "ab" * 32
        begun = await authenticator.sign_in("ben", password, HERE, old=planted)
        assert begun.secret != planted
        assert await authenticator.by_session(planted) is None
        others = await authenticator.sign_in("anna", password, HERE)
        again = await authenticator.sign_in("ben", password, HERE, old=others.secret)
        assert await authenticator.by_session(others.secret) is None, "the browser has one session, not two"
        assert await authenticator.by_session(again.secret) == again.principal

    inside(told)


@pytest.mark.parametrize("word", ["disable", "out", "password", "subject"])
def test_what_changes_an_account_ends_its_sessions(word: str):
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        begun, other = [await authenticator.sign_in(name, password, HERE) for name in ("ben", "anna")]
        if word == "password":
            await house.set_password("ben", secrets.token_hex(12))
        else:
            await house.accounts.change("ben", AccountNote(word, "anna"))  # type: ignore[arg-type]  # drawn from the list above
        assert await authenticator.by_session(begun.secret) is None
        await house.accounts.change("ben", AccountNote("enable", "anna"))
        assert await authenticator.by_session(begun.secret) is None, "enabling brings no old session back"
        assert await authenticator.by_session(other.secret) is not None

    inside(told)


def test_a_password_that_changes_while_the_old_one_is_compared_ends_that_session_too():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        verify, loop = house.hasher.verify, asyncio.get_running_loop()

        def slow(hash: str, given: str) -> bool:  # noqa: A002 - the library's own name
            new = house.set_password("ben", secrets.token_hex(12))
            asyncio.run_coroutine_threadsafe(new, loop).result()
            return verify(hash, given)

        house.hasher.verify = slow  # type: ignore[method-assign]  # what happens meanwhile
        assert (await refused(authenticator, "ben", password)).message == WRONG

    inside(told)


def test_a_role_that_changed_counts_at_once():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        begun = await authenticator.sign_in("ben", password, HERE)
        await house.accounts.change("ben", AccountNote("role", "anna", grants=(Grant("viewer"),)))
        principal = await authenticator.by_session(begun.secret)
        assert principal is not None
        assert principal.grants == (Grant("viewer"),)

    inside(told)


def test_a_session_ends_by_itself_and_with_the_journal_that_was_put_back():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        begun = await authenticator.sign_in("ben", password, HERE)
        now = house.now.ms
        assert await authenticator.sessions.principal(begun.secret, now + LASTS_MS - 1) is not None
        assert await authenticator.sessions.principal(begun.secret, now + LASTS_MS) is None
        restored = Sessions(house.journal, Identity("memory", b"", "2"), house.accounts)
        assert await restored.principal(begun.secret, now) is None

    inside(told)


@pytest.mark.parametrize("forged", ["", "0" * 64, "0" * 63, "../accounts", "g" * 64, "é" * 64, "0" * 64 + "\n"])
def test_what_is_no_session_opens_nothing_and_is_not_noted(forged: str):
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        await authenticator.sessions.end(forged)
        assert await authenticator.by_session(forged) is None
        assert await house.journal.entries("sessions/") == []

    inside(told)


def test_a_journal_that_was_put_back_lets_nobody_in_until_it_is_confirmed():
    async def told() -> None:
        house = House(trust="distrustful")
        async with house.authenticator() as authenticator:
            assert authenticator.closed

    asyncio.run(told())


# --- what they may, on record ----------------------------------------------------------------------------------------


def test_refusals_of_an_account_do_not_fill_the_ledger():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        for session in range(3):  # whatever is asked for, in however many sessions
            ben = (await authenticator.sign_in("ben", password, HERE)).principal
            for number in range(20):
                scope = PermissionScope(f"r-{session}-{number}/restock#1", "restock")
                with pytest.raises(NotAllowed):
                    await authenticator.require(ben, "answer", scope, proposers=())
                with pytest.raises(NotAllowed):
                    await authenticator.require_somewhere(ben, "tune")
        refused = [one.access for one in await authenticator.log.read("ben") if not one.access.allowed]
        assert [(one.deed, one.about) for one in refused] == [("answer", "r-0-0/restock#1"), ("tune", "")]
        house.now.pass_by(seconds=3600)
        with pytest.raises(NotAllowed):
            await authenticator.require_somewhere(ben, "tune")
        assert len([one for one in await authenticator.log.read("ben") if not one.access.allowed]) == 3

    inside(told)


def test_each_decision_is_on_record_before_anything_is_done():
    async def told(house: House, authenticator: Authenticator, password: str) -> None:
        ben = (await authenticator.sign_in("ben", password, HERE)).principal
        item = PermissionScope("r-1/refund#1", "refund")
        await authenticator.require(ben, "answer", item, proposers=("anna",))
        with pytest.raises(NotAllowed, match="cannot approve their own"):
            await authenticator.require(ben, "answer", item, proposers=("Ben",))
        with pytest.raises(NotAllowed, match="role answerer for restock"):
            await authenticator.require(ben, "answer", PermissionScope("r-1/restock#1", "restock"), proposers=())
        with pytest.raises(NotAllowed):
            await authenticator.require_somewhere(ben, "tune")
        for _ in range(3):
            await authenticator.require(ben, "look", item)
            await authenticator.require_somewhere(ben, "look")
        noted = [(one.access.deed, one.access.allowed, one.access.about) for one in await authenticator.log.read("ben")]
        assert noted == [
            ("sign in", True, ""),
            ("answer", True, "r-1/refund#1"),
            ("answer", False, "r-1/refund#1"),
            ("tune", False, ""),
            ("look", True, ""),
        ]
        assert {one.access.session for one in await authenticator.log.read("ben")} == {ben.session}
        house.now.pass_by(seconds=3600)
        await authenticator.require(ben, "look", item)
        with pytest.raises(NotAllowed):
            await authenticator.require(ben, "answer", PermissionScope("r-1/restock#1", "restock"), proposers=())
        noted = [(one.access.deed, one.access.about) for one in await authenticator.log.read("ben")]
        assert noted[5:] == [("look", ""), ("answer", "r-1/restock#1")], (
            "looking and refusals are recorded once an hour"
        )

    inside(told)
