"""The simulated event loop ends cleanly, whatever its tasks were doing."""

import asyncio
from collections.abc import AsyncIterator

from holdfast.testing.world.loop import SimLoop


def test_a_task_that_closes_a_generator_is_closed_at_the_end() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def main() -> None:
        generator = numbers()
        await anext(generator)
        asyncio.get_running_loop().create_task(generator.aclose())  # as asyncio does with one that was collected

    loop = SimLoop(lambda actors: actors[0])
    loop.run(main(), until=10)
    assert loop.is_closed()
