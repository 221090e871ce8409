"""The services behave as they document, over real HTTP and SMTP."""

import asyncio

import aiosmtplib
import httpx2
import pytest

from beforehand.demo.scenario import Kill, ScheduledFault
from beforehand.demo.shop import RefusedError
from tests.demo.worlds import CUSTOMERS, FIRST, counted, open_shop, world_with

REFUND = ("payments", FIRST.id)


def refund(shop, key="k-1", cents=700, reference="r-1"):
    return shop.refund(FIRST.order_id, cents, key=key, reference=reference)


def mail(shop, message_id="<m-1@example.com>"):
    return shop.send_mail(FIRST.email, "Your refund", "It is on its way.", message_id=message_id)


def ticket(shop, body="broken [m-1]"):
    return shop.open_ticket(FIRST.order_id, "Broken", body)


def restock(shop):
    return shop.restock(FIRST.order_id, FIRST.sku, 2)


CALLS = {"payments": refund, "mail": mail, "tracker": ticket, "warehouse": restock}


def run(world, story):
    async def main():
        async with open_shop(world) as shop:
            await story(shop)

    asyncio.run(main())


async def fails(call):
    with pytest.raises((httpx2.HTTPError, aiosmtplib.SMTPException)) as error:
        await call
    return error.value


@pytest.mark.parametrize("service", CALLS)
class TestFaults:
    def test_well_served(self, service):
        world = world_with()

        async def story(shop):
            await CALLS[service](shop)

        run(world, story)
        assert counted(world) == {(service, FIRST.id): 1}

    def test_commits_and_never_answers(self, service):
        world = world_with(service, ScheduledFault.SILENT)

        async def story(shop):
            error = await fails(CALLS[service](shop))
            assert isinstance(error, httpx2.ReadTimeout | aiosmtplib.SMTPTimeoutError)

        run(world, story)
        assert counted(world) == {(service, FIRST.id): 1}

    def test_lands_late(self, service):
        world = world_with(service, ScheduledFault.LATE)

        async def story(shop):
            await fails(CALLS[service](shop))
            assert world.effects == []
            world.clock.turn(world.pace.late)
            assert len(await world.quiet()) == 1

        run(world, story)

    def test_commits_and_answers_with_an_error(self, service):
        world = world_with(service, ScheduledFault.BROKEN)

        async def story(shop):
            error = await fails(CALLS[service](shop))
            code = error.code if isinstance(error, aiosmtplib.SMTPDataError) else error.response.status_code
            assert code in (451, 500)

        run(world, story)
        assert counted(world) == {(service, FIRST.id): 1}

    def test_loses_the_request(self, service):
        world = world_with(service, ScheduledFault.LOST)

        async def story(shop):
            await fails(CALLS[service](shop))
            await CALLS[service](shop)  # the second call is served

        run(world, story)
        assert counted(world) == {(service, FIRST.id): 1}

    def test_refuses_every_call(self, service):
        world = world_with(service, ScheduledFault.REFUSED)

        async def story(shop):
            for _ in range(2):
                with pytest.raises(RefusedError) as no:
                    await CALLS[service](shop)
                assert no.value.code

        run(world, story)
        assert world.effects == []

    def test_slow_answer_still_arrives(self, service):
        world = world_with(service, ScheduledFault.SLOW)

        async def story(shop):
            call = asyncio.create_task(CALLS[service](shop))
            await world.clock.somebody_sleeps.wait()
            world.clock.turn(world.pace.slow)
            await call

        run(world, story)
        assert counted(world) == {(service, FIRST.id): 1}

    @pytest.mark.parametrize(("moment", "effects"), [("arrival", 0), ("commit", 1)])
    def test_kill_strikes_once_and_nothing_is_answered(self, service, moment, effects):
        seen = []

        async def kill(point):
            seen.append((point.event, len(world.effects)))

        world = world_with(service, kills=[Kill(9, FIRST.id, service, moment)], kill=kill)

        async def story(shop):
            while not seen:  # a call may be given up before it has arrived
                await fails(CALLS[service](shop))
            assert seen == [(9, effects)]
            await CALLS[service](shop)

        run(world, story)
        assert len(seen) == 1


class TestPayments:
    def test_same_key_same_body_is_one_refund(self):
        world = world_with()

        async def story(shop):
            assert await refund(shop) == await refund(shop)
            assert (await refund(shop, key="k-2")).id != (await refund(shop)).id

        run(world, story)
        assert counted(world) == {REFUND: 2}

    def test_same_key_other_body_is_refused(self):
        async def story(shop):
            await refund(shop)
            with pytest.raises(RefusedError) as no:
                await refund(shop, cents=701)
            assert no.value.code == "key_reused"

        run(world_with(), story)

    @pytest.mark.parametrize(("age", "refunds"), [(120.0, 1), (120.1, 2)])
    def test_a_key_is_forgotten_after_its_time(self, age, refunds):
        world = world_with()

        async def story(shop):
            await refund(shop)
            world.clock.turn(age)
            await refund(shop)

        run(world, story)
        assert counted(world) == {REFUND: refunds}

    def test_in_progress_until_the_late_one_lands(self):
        world = world_with(first=ScheduledFault.LATE)

        async def story(shop):
            await fails(refund(shop))
            error = await fails(refund(shop))
            assert error.response.status_code == 409
            world.clock.turn(world.pace.late)
            await world.quiet()
            await refund(shop)

        run(world, story)
        assert counted(world) == {REFUND: 1}

    def test_refunds_are_found_by_reference(self):
        async def story(shop):
            assert await shop.find_refund("r-1") is None
            made = await refund(shop)
            assert await shop.find_refund("r-1") == made
            assert await shop.find_refund("") is None

        run(world_with(), story)


class TestLag:
    def test_mailbox_shows_a_message_after_the_lag(self):
        world = world_with()

        async def story(shop):
            await mail(shop)
            assert not await shop.find_mail("<m-1@example.com>")
            world.clock.turn(world.pace.lag)
            assert await shop.find_mail("<m-1@example.com>")
            assert not await shop.find_mail("<m-2@example.com>")

        run(world, story)

    def test_same_message_id_is_delivered_twice(self):
        world = world_with()

        async def story(shop):
            await mail(shop)
            await mail(shop)

        run(world, story)
        assert counted(world) == {("mail", FIRST.id): 2}

    def test_search_finds_a_ticket_after_the_lag(self):
        world = world_with()

        async def story(shop):
            made = await ticket(shop)
            assert await shop.find_ticket("[m-1]") is None
            world.clock.turn(world.pace.lag)
            assert await shop.find_ticket("[m-1]") == made
            assert await shop.find_ticket("[m-2]") is None

        run(world, story)


def test_strangers_are_refused():
    stranger = "nobody@example.com"
    assert stranger not in {customer.email for customer in CUSTOMERS}

    async def story(shop):
        calls = (
            shop.refund("order-0", 1, key="k"),
            shop.send_mail(stranger, "s", "b", message_id="<m@example.com>"),
            shop.open_ticket("order-0", "t", "b"),
            shop.restock("order-0", "sku-1", 1),
        )
        for call in calls:
            with pytest.raises(RefusedError):
                await call

    run(world_with(), story)
