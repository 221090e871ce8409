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


def test_a_run_on_its_last_chance_makes_its_attempts_and_nothing_else_begins():
    async def main():
        company = Company()
        assert await company.enter("suspect", alone=True)
        company_of_others = [
            asyncio.create_task(company.enter("other", alone=False)),
            asyncio.create_task(company.admit("third", alone=False)),
        ]
        await company.admit("suspect", alone=False)
        await turns()
        assert not any(one.done() for one in company_of_others)
        company.leave("suspect", alone=False)
        company.exit("suspect")
        company.exit("suspect")  # its end says so once more
        await turns()
        assert all(one.done() for one in company_of_others)

    asyncio.run(main())


def test_a_run_that_is_inside_goes_on_while_another_waits_to_be_alone():
    """It could not record any progress otherwise, and both would wait for ever."""

    async def main():
        company = Company()
        assert await company.enter("first", alone=False)
        suspect = asyncio.create_task(company.enter("suspect", alone=True))
        await turns()
        await asyncio.wait_for(company.admit("first", alone=False), 1)
        company.exit("first")
        await turns()
        assert not suspect.done(), "its attempt is still in flight"
        company.leave("first", alone=False)
        await turns()
        assert suspect.done()

    asyncio.run(main())


def test_two_runs_whose_attempts_both_go_alone_do_not_wait_for_each_other():
    async def main():
        company = Company()
        assert await company.enter("a", alone=False)
        assert await company.enter("b", alone=False)
        attempts = [asyncio.create_task(company.admit(run, alone=True)) for run in "ab"]
        await turns()
        (first,) = (run for run, one in zip("ab", attempts, strict=True) if one.done())
        company.leave(first, alone=True)
        await turns()
        assert all(one.done() for one in attempts)

    asyncio.run(main())


def test_a_run_that_waits_for_its_turn_does_not_begin_once_the_process_shuts_down():
    async def main():
        company = Company()
        assert await company.enter("suspect", alone=True)
        waiting = [asyncio.create_task(company.enter(run, alone=run == "b")) for run in "ab"]
        await turns()
        company.close()
        assert await asyncio.gather(*waiting) == [False, False]
        company.exit("suspect")
        assert not company.reserved

    asyncio.run(main())
