"""What a world says to a test that could not show anything."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import UsageError
from beforehand.testing.world import World


@tool(idempotency=Key.forever())
async def pay(order: str) -> str:
    return f"paid {order} {current_operation().key[:2]}"


@tool
async def never_called(order: str) -> None:
    """Never called."""


@agent(run_id="pay-{order}", tools=[pay, never_called])
async def payer(run: Run, order: str) -> str:
    return await pay(order)


@agent(run_id="broken-{order}", tools=[pay])
async def broken(run: Run, order: str) -> str:
    raise LookupError(f"no {await pay(order)}")


@agent(run_id="asks-{order}", tools=[pay])
async def asks(run: Run, order: str) -> str:
    await pay(order)
    return await run.ask("Was that right?")


@pytest.mark.parametrize("sigkill", [False, True])
def test_a_run_that_fails_by_itself_is_not_explored(sigkill: bool):
    with pytest.raises(AssertionError) as told:
        World(sigkill=sigkill).explore(broken, "17")
    story = " ".join(str(told.value).split())
    assert "nothing was explored: without any crash the run is stopped: LookupError: no paid 17" in story
    assert sigkill or isinstance(told.value.__cause__, LookupError)


def test_a_run_that_waits_for_a_person_is_explored_up_to_there(world: World):
    assert "Was that right?" in world.run(asks, "17").asks
    assert world.explore(asks, "17").undisturbed == ["pay(order='17')"]


def test_a_fault_that_no_call_came_by_is_said(world: World):
    world.lose_reply(never_called)
    world.lose_reply(pay)
    assert world.run(payer, "17").unmet == ["lose_reply of never_called"]
    assert "Requested, and no call ran into it: lose_reply of never_called." in str(world.explore(payer, "17"))


async def _explores(world: World) -> None:
    world.explore(payer, "17")


async def _runs(world: World) -> None:
    world.run(payer, "17")


@pytest.mark.parametrize("asking", [_explores, _runs])
def test_async_code_cannot_ask(world: World, asking: Callable[[World], object]):
    with pytest.raises(UsageError, match="from a plain `def` test"):
        asyncio.run(asking(world))


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (lambda world: world.use(object()), "is not a fake that can be counted"),
        (lambda world: world.explore(pay, "17"), "is not an agent"),
        (lambda world: world.run(pay, "17"), "is not an agent"),
        (lambda world: world.explore(payer, "17", crashes=3), "crashes=3"),
        (lambda world: world.stub(pay.verify, returns=1), "pay has no verify"),
        (lambda world: world.lag(pay, timedelta(1)), "pay declares no verify"),
    ],
)
def test_what_makes_no_sense_is_refused(world: World, order: Callable[[World], object], said: str):
    with pytest.raises(UsageError, match=said):
        order(world)


@tool
async def fetch(order: str) -> str:
    _, writer = await asyncio.open_connection("127.0.0.1", 9)
    writer.close()
    return order


@agent(run_id="fetch-{order}", tools=[fetch])
async def fetcher(run: Run, order: str) -> str:
    return await fetch(order)


def test_an_async_client_is_told_that_there_is_no_network(world: World):
    with pytest.raises(AssertionError) as told:
        world.explore(fetcher, "17")
    story = " ".join(str(told.value).split())
    assert "nothing was explored: without any crash fetch#1 is left unknown" in story
    assert "no network for async clients" in story
