"""Who may attempt beside whom, in one process: whoever wants to be alone is, and nobody waits for ever."""

import asyncio

from holdfast.engine.company import Company


async def turns(times=3):
    """Let everybody who can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)


def test_one_who_wants_to_be_alone_waits_for_all_others_and_they_for_it():
    async def main():
        company = Company()
        company.join()
        company.join()
        alone = asyncio.create_task(company.admit(alone=True))
        await turns()
        later = asyncio.create_task(company.admit(alone=False))
        company.leave(alone=False)
        await turns()
        assert company.reserved
        assert not alone.done()
        company.leave(alone=False)
        await turns()
        assert alone.done()
        assert not later.done(), "somebody was let in beside one who attempts alone"
        company.leave(alone=True)
        await turns()
        assert later.done()
        assert not company.reserved

    asyncio.run(main())


def test_two_who_want_to_be_alone_go_one_after_the_other():
    async def main():
        company = Company()
        first, second = (asyncio.create_task(company.admit(alone=True)) for _ in range(2))
        await turns()
        assert (first.done(), second.done()) == (True, False)
        company.leave(alone=True)
        await turns()
        assert second.done()

    asyncio.run(main())


def test_one_who_gives_up_waiting_keeps_nobody_out():
    async def main():
        company = Company()
        company.join()
        alone = asyncio.create_task(company.admit(alone=True))
        await turns()
        gone, later = (asyncio.create_task(company.admit(alone=False)) for _ in range(2))
        await turns()
        gone.cancel()
        alone.cancel()
        await turns()
        assert alone.cancelled()
        assert later.done()
        assert not company.reserved

    asyncio.run(main())
