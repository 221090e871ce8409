"""The order with a late refund, over real sockets: whatever the bank's webhooks do, the money moves once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from examples.order import Order
from examples.shop import Shop, open_shop

ORDER = Order("17", 4200)
Story = Callable[[Shop], Coroutine[Any, Any, None]]


def in_a_shop(story: Story) -> Callable[[], None]:
    """A test that is given a shop with a bank beside it."""

    def test() -> None:
        async def main() -> None:
            async with open_shop() as shop:
                await story(shop)
                assert (len(shop.bank.paid), len(shop.bank.refunds)) == (1, 1), "the money moved once"

        asyncio.run(main())

    test.__doc__ = story.__doc__
    return test


async def later(call: Callable[..., list[int]], *given: Any) -> list[int]:
    """What the bank does meanwhile."""
    return await asyncio.to_thread(call, *given)


@in_a_shop
async def test_the_confirmation_comes_a_day_later(shop: Shop) -> None:
    assert "answer later: the bank accepted it as R-" in await shop.go_on(ORDER)
    shop.calendar.turn(timedelta(hours=23))
    assert "answer later: the bank accepted it as R-" in await shop.go_on(ORDER)
    assert await later(shop.bank.confirm) == [204]
    assert "came back as R-" in await shop.go_on(ORDER)


@in_a_shop
async def test_it_comes_before_the_bank_has_answered(shop: Shop) -> None:
    shop.bank.early = True
    assert "came back as R-" in await shop.go_on(ORDER)


@in_a_shop
async def test_it_comes_three_times_and_once_more_afterwards(shop: Shop) -> None:
    await shop.go_on(ORDER)
    assert await later(shop.bank.confirm, 3) == [204, 204, 204]
    said = await shop.go_on(ORDER)
    assert await later(shop.bank.confirm) == [204]
    assert await shop.go_on(ORDER) == said
    _, operation = await shop.app.service.operation("order-17/refund#1")
    assert (operation.phase, operation.links.contradicted) == ("succeeded", ())


@in_a_shop
async def test_it_never_comes_and_the_bank_says_that_it_is_done(shop: Shop) -> None:
    await shop.go_on(ORDER)
    shop.bank.book()
    shop.calendar.turn(timedelta(hours=25))
    assert "came back as R-" in await shop.go_on(ORDER)
    _, operation = await shop.app.service.operation("order-17/refund#1")
    assert operation.settlement.basis is not None
    assert operation.settlement.basis.by == "evidence"


@in_a_shop
async def test_it_never_comes_and_the_bank_cannot_say_so_a_person_does(shop: Shop) -> None:
    await shop.go_on(ORDER)
    shop.bank.blind = True
    shop.calendar.turn(timedelta(hours=25))
    assert "its answer did not come in time" in await shop.go_on(ORDER)
    await shop.app.service.resolve("order-17/refund#1", "happened", by="bea", result="R-by-hand")
    assert "came back as R-by-hand" in await shop.go_on(ORDER)
    assert await later(shop.bank.confirm) == [204], "late news of what a person has settled changes nothing"
