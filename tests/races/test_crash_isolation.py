"""Which attempts and runs one process admits beside each other, and that none waits for ever."""

import asyncio

import pytest

from beforehand.engine.crash_isolation import IsolationGate


async def turns(times=3):
    """Let every task that can go on do so."""
    for _ in range(times):
        await asyncio.sleep(0)


def test_one_who_wants_to_be_alone_waits_for_all_others_and_they_for_it():
    async def main():
        gate = IsolationGate()
        gate.enter()
        gate.enter()
        alone = asyncio.create_task(gate.wait_to_enter(chances=1))
        await turns()
        later = asyncio.create_task(gate.wait_to_enter(chances=0))
        gate.exit(chances=0)
        await turns()
        assert gate.alone
        assert not alone.done()
        gate.exit(chances=0)
        await turns()
        assert alone.done()
        assert not later.done(), "another was let in beside an attempt that is alone"
        gate.exit(chances=1)
        await turns()
        assert later.done()
        assert not gate.alone

    asyncio.run(main())


def test_two_who_want_to_be_alone_go_one_after_the_other():
    async def main():
        gate = IsolationGate()
        first, second = (asyncio.create_task(gate.wait_to_enter(chances=1)) for _ in range(2))
        await turns()
        assert (first.done(), second.done()) == (True, False)
        gate.exit(chances=1)
        await turns()
        assert second.done()

    asyncio.run(main())


def test_one_who_gives_up_waiting_keeps_no_other_out():
    async def main():
        gate = IsolationGate()
        gate.enter()
        alone = asyncio.create_task(gate.wait_to_enter(chances=1))
        await turns()
        gone, later = (asyncio.create_task(gate.wait_to_enter(chances=0)) for _ in range(2))
        await turns()
        gone.cancel()
        alone.cancel()
        await turns()
        assert alone.cancelled()
        assert later.done()
        assert not gate.alone

    asyncio.run(main())


def test_a_run_on_its_last_chance_makes_its_attempts_and_nothing_else_begins():
    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("suspect", chances=1)
        others = [
            asyncio.create_task(gate.enter_run("other", chances=0)),
            asyncio.create_task(gate.wait_to_enter("third", chances=0)),
        ]
        await gate.wait_to_enter("suspect", chances=0)
        await turns()
        assert not any(one.done() for one in others)
        gate.exit("suspect", chances=0)
        gate.exit_run("suspect")
        gate.exit_run("suspect")  # its end says so once more
        await turns()
        assert all(one.done() for one in others)

    asyncio.run(main())


def test_a_run_that_is_inside_goes_on_while_another_waits_to_be_alone():
    """It could not record any progress otherwise, and both would wait for ever."""

    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("first", chances=0)
        suspect = asyncio.create_task(gate.enter_run("suspect", chances=1))
        await turns()
        await asyncio.wait_for(gate.wait_to_enter("first", chances=0), 1)
        gate.exit_run("first")
        await turns()
        assert not suspect.done(), "its attempt is still in flight"
        gate.exit("first", chances=0)
        await turns()
        assert suspect.done()

    asyncio.run(main())


def test_two_runs_whose_attempts_both_go_alone_do_not_wait_for_each_other():
    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("a", chances=0)
        assert await gate.enter_run("b", chances=0)
        attempts = [asyncio.create_task(gate.wait_to_enter(run, chances=1)) for run in "ab"]
        await turns()
        (first,) = (run for run, one in zip("ab", attempts, strict=True) if one.done())
        gate.exit(first, chances=1)
        await turns()
        assert all(one.done() for one in attempts)

    asyncio.run(main())


def test_a_run_that_waits_for_its_turn_does_not_begin_once_the_process_shuts_down():
    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("suspect", chances=1)
        waiting = [asyncio.create_task(gate.enter_run(run, chances=int(run == "b"))) for run in "ab"]
        await turns()
        gate.close()
        assert await asyncio.gather(*waiting) == [False, False]
        gate.exit_run("suspect")
        assert not gate.alone

    asyncio.run(main())


def test_the_more_deaths_the_fewer_suspects_go_at_once_and_others_beside_them():
    async def main():
        for chances, width in [(4, 27), (3, 9), (2, 3), (1, 1)]:
            gate = IsolationGate()
            suspects = [asyncio.create_task(gate.wait_to_enter(str(number), chances=chances)) for number in range(40)]
            await turns()
            assert sum(one.done() for one in suspects) == width
            if chances > 1:
                await asyncio.wait_for(gate.wait_to_enter("healthy"), 1)
                gate.exit("healthy")
            for number in range(40):
                assert suspects[number].done(), "they come in as others leave, in the order in which they asked"
                gate.exit(str(number), chances=chances)
                await turns()
            await asyncio.wait_for(gate.wait_to_enter("last", chances=1), 1)

    asyncio.run(main())


def test_a_suspect_takes_the_room_of_several_that_have_more_chances():
    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("two deaths", chances=3)
        runs = [asyncio.create_task(gate.enter_run(f"one death {number}", chances=4)) for number in range(30)]
        await turns()
        assert sum(one.done() for one in runs) == 24
        gate.exit_run("two deaths")
        await turns()
        assert sum(one.done() for one in runs) == 27
        gate.close()
        assert (await asyncio.gather(*runs)).count(False) == 3

    asyncio.run(main())


def test_a_suspected_run_is_not_counted_beside_its_own_suspected_attempt():
    """Otherwise runs that fill the process would wait for room for their attempts for ever."""

    async def main():
        gate = IsolationGate()
        for number in range(3):
            assert await gate.enter_run(str(number), chances=2)
        attempts = [asyncio.create_task(gate.wait_to_enter(str(number), chances=2)) for number in range(3)]
        await turns()
        assert all(one.done() for one in attempts)

    asyncio.run(main())


@pytest.mark.parametrize("chances", [1, 2, 3])
def test_the_attempt_of_a_run_on_its_last_chance_goes_before_others_that_wait_to_be_alone(chances: int):
    """They would count against the claim of the run, which has not ended yet."""

    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("harmless", chances=1)
        poison = asyncio.create_task(gate.wait_to_enter("poison", chances=1))
        await turns()
        attempt = asyncio.create_task(gate.wait_to_enter("harmless", chances=chances))
        await turns()
        assert [one.done() for one in (attempt, poison)] == [True, False]
        gate.exit("harmless", chances=attempt.result())
        await turns()
        assert not poison.done(), "the run has not ended yet"
        gate.exit_run("harmless")
        await turns()
        assert poison.done()

    asyncio.run(main())


def test_two_attempts_of_a_run_on_its_last_chance_go_one_after_the_other():
    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("harmless", chances=1)
        first, second = (asyncio.create_task(gate.wait_to_enter("harmless", chances=1)) for _ in range(2))
        await turns()
        assert (first.done(), second.done()) == (True, False)
        gate.exit("harmless", chances=1)
        await turns()
        assert second.done()

    asyncio.run(main())


def test_the_attempt_of_a_suspected_run_takes_over_its_room():
    """One that waits to be alone would go first, and its death would count against the claim of the run."""

    async def main():
        gate = IsolationGate()
        assert await gate.enter_run("harmless", chances=2)
        poison = asyncio.create_task(gate.wait_to_enter("poison", chances=1))
        await turns()
        attempt = asyncio.create_task(gate.wait_to_enter("harmless", chances=2))
        await turns()
        assert [one.done() for one in (attempt, poison)] == [True, False]
        gate.exit("harmless", chances=attempt.result())
        await turns()
        assert not poison.done(), "the run may still kill the process"
        gate.exit_run("harmless")
        await turns()
        assert poison.done()

    asyncio.run(main())
