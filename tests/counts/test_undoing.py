"""What it costs to undo one effect of many: the same, however many there are."""

import sys
from collections import Counter

import pytest

from beforehand import Operation, Run, TransactionAborted, agent, tool
from tests.unit.engine.lab import Lab, virtual


async def undo(lab: Lab, count: int) -> float:
    """The calls for each of `count` effects that are undone, one after another."""
    calls: Counter[str] = Counter()

    @tool
    async def take(place: int) -> int:
        return place

    @take.compensate(restores=True)
    @tool
    async def give(operation: Operation[int], place: int) -> None:
        lab.sent.append(str(place))

    @agent(run_id="r-{number}", tools=[take])
    async def desk(run: Run, number: int) -> None:
        async with run.transaction("all") as everything:
            for place in range(number):
                await take(place)
            sys.setprofile(lambda frame, event, argument: calls.update([event]))
            everything.abort("no")

    async with lab.app(desk) as app:
        try:
            with pytest.raises(TransactionAborted):
                await app.run(desk, count)
        finally:
            sys.setprofile(None)
    assert lab.sent == [str(place) for place in reversed(range(count))]
    lab.sent.clear()
    return calls["call"] / count


@virtual
async def test_undoing_an_effect_costs_the_same_among_few_and_among_many(lab: Lab):
    few, many = await undo(lab, 50), await undo(lab, 400)
    assert many < few * 1.1, f"{few:.0f} calls for one of 50, {many:.0f} for one of 400"
