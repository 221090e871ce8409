"""Time limits that share one timer: each ends when it should, whatever was set and lifted around it."""

import asyncio

from beforehand.engine.calls import CallTimeouts
from beforehand.testing.clock import run_virtual


async def _waited(limits: CallTimeouts, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    start = loop.time()
    await limits.wait(loop.create_future(), seconds)
    return loop.time() - start


def test_every_limit_ends_in_its_own_time():
    async def main():
        limits = CallTimeouts()
        return await asyncio.gather(*(_waited(limits, seconds) for seconds in (30, 0, 2, 60, 2)))

    waited = run_virtual(main())
    assert [round(seconds, 6) for seconds in waited] == [30, 0, 2, 60, 2]


def test_what_ends_by_itself_takes_no_time_and_leaves_later_limits_alone():
    async def main():
        limits, loop = CallTimeouts(), asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(1, over.set_result, None)
        await limits.wait(over, 10)
        return loop.time(), await _waited(limits, 15)

    at, waited = run_virtual(main())
    assert (round(at, 6), round(waited, 6)) == (1, 15)


def test_a_cancelled_wait_is_forgotten():
    async def main():
        limits = CallTimeouts()
        waiting = asyncio.ensure_future(_waited(limits, 5))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait({waiting})
        return await _waited(limits, 8)

    assert round(run_virtual(main()), 6) == 8
