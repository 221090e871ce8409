"""Errands: who has something to say to the product says it to any process that is awake, until it was taken down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from holdfast.control.service import Service
from holdfast.errors import HoldfastError, UsageError
from holdfast.testing.world.loop import Actor

if TYPE_CHECKING:
    from simulator.world import World

AGAIN_MS: Final = 15_000
"""After that time somebody says it again who has not been heard."""


class Errand:
    """One thing to be said. It is over once it was taken down, or refused and whoever said it told why.

    `deed` says it, and `told` hears by whom it was taken down, and whether it was refused.
    """

    def __init__(
        self,
        world: World,
        what: str,
        deed: Callable[[Service], Awaitable[object]],
        told: Callable[[Actor, bool], None],
        *,
        again_ms: int = AGAIN_MS,
    ) -> None:
        self.what: Final = what
        self.over = False
        self._world = world
        self._deed = deed
        self._told = told
        self._again_ms = again_ms

    def begin(self, after_ms: int) -> None:
        """Set out after a while."""
        self._world.later(after_ms, self._try)

    def _try(self) -> None:
        world = self._world
        if self.over or world.closing:
            return
        awake = [life for life in world.lives.values() if life.app is not None and life.actor.alive]
        if awake:
            life = world.chance.choice(awake)
            world.loop.inside(life.actor, life.hear_out(self))
        world.later(self._again_ms, self._try)

    async def run(self, actor: Actor, service: Service) -> None:
        """Say it, inside a process."""
        if self.over:
            return
        self._world.tell(actor, f"hears {self.what}")
        try:
            await self._deed(service)
        except UsageError:
            self._end(actor, refused=True)
        except HoldfastError as error:
            self._world.tell(actor, f"cannot take down {self.what}: {error.message}")
        else:
            self._end(actor, refused=False)

    def _end(self, actor: Actor, *, refused: bool) -> None:
        self._world.tell(actor, f"{'refuses' if refused else 'takes down'} {self.what}")
        self.over = True
        self._told(actor, refused)
