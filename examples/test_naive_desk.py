"""`explore` crashes both desks at every boundary: it catches the naive one, and passes the mended one."""

import pytest

from beforehand.testing import World
from examples import naive_desk as desk


def test_the_naive_desk_is_caught(world: World) -> None:
    world.use(desk.payments, desk.tickets)
    with pytest.raises(AssertionError) as told:
        world.explore(desk.naive_desk, "ann")
    assert "Payments: charge ann -500 happens 2 times" in str(told.value)
    assert "no tool's record covers it" in str(told.value)


def test_its_plain_tool_is_left_unknown(world: World) -> None:
    world.use(desk.tickets)  # and the payments are not counted
    with pytest.raises(AssertionError, match="`create_ticket` takes no key and declares no verify"):
        world.explore(desk.naive_desk, "ann")


def test_the_mended_desk_passes(world: World) -> None:
    world.use(desk.payments, desk.tickets)
    explored = world.explore(desk.mended_desk, "ann")
    assert explored.undisturbed[-2:] == ["Payments: charge ann -500", "Tickets: ticket refund for ann"]
