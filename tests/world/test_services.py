"""The fake services: what each forgives, what it repeats, and how late it shows what happened."""

import asyncio
from datetime import timedelta

import pytest

from beforehand.testing import run_virtual
from beforehand.testing.services import Calendar, KeyValue, MailServer, NumberTaken, Payments, Tickets


def test_a_key_is_honoured_until_it_is_forgotten():
    payments = Payments(ttl=timedelta(hours=1))

    async def charges() -> list[str]:
        first = [await payments.charge("ann", 5, key="k") for _ in range(2)]
        with pytest.raises(ValueError, match="other parameters"):
            await payments.charge("ann", 6, key="k")
        await asyncio.sleep(3600)
        return [*first, await payments.charge("ann", 5, key="k")]

    assert run_virtual(charges()) == ["ch-1", "ch-1", "ch-2"]
    assert payments.effects() == ["charge ann 5"] * 2
    payments.reset()
    assert payments.effects() == []


def test_a_charge_without_a_key_is_made_again():
    payments = Payments()

    async def charges() -> None:
        await payments.charge("ann", 5)
        await payments.charge("ann", 5)

    run_virtual(charges())
    assert payments.effects() == ["charge ann 5"] * 2


def test_a_sent_folder_and_a_search_lag_behind():
    mail, tickets = MailServer(timedelta(seconds=9)), Tickets(timedelta(seconds=9))

    async def looks() -> list[object]:
        await mail.send("ann", "hello", message_id="m1")
        await tickets.create("lamp", "m1")
        early = [await mail.in_sent_folder("m1"), await tickets.search("m1")]
        await asyncio.sleep(9)
        return [*early, await mail.in_sent_folder("m1"), await tickets.search("m1")]

    assert run_virtual(looks()) == [False, [], True, ["T-1"]]
    assert (mail.effects(), tickets.effects()) == (["mail to ann: hello"], ["ticket lamp"])


def test_a_calendar_refuses_a_number_twice_and_a_store_counts_changes_alone():
    calendar, store = Calendar(), KeyValue()

    async def acts() -> None:
        await calendar.book("n1", "dinner")
        with pytest.raises(NumberTaken):
            await calendar.book("n1", "dinner")
        assert await calendar.find("n1") == "dinner"
        await calendar.cancel("n1")
        await calendar.cancel("n1")
        for value in ("a", "a", "b"):
            await store.put("x", value)
        assert await store.get("x") == "b"

    run_virtual(acts())
    assert calendar.effects() == ["booked dinner", "cancelled dinner"]
    assert store.effects() == ["x=a", "x=b"]
