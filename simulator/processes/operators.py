"""Commands that operators give from outside, through whichever process is awake, until one has accepted them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from beforehand.control.service import ControlService
from beforehand.testing.loop import Actor
from simulator.people.approvers import Errand

if TYPE_CHECKING:
    from simulator.world import World


def set_out(
    world: World,
    what: str,
    command: Callable[[ControlService], Awaitable[object]],
    after_ms: int,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Give one command after a while, and then do the next thing. The simulation does not end before."""
    given = False

    def ended(_actor: Actor, _refused: bool) -> None:
        nonlocal given
        if not given:  # a command that is repeated may be acknowledged twice
            given = True
            world.unsaid -= 1
            then()

    world.unsaid += 1
    Errand(world, what, command, ended).begin(after_ms)
