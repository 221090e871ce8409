"""What the planted bugs put in the place of the functions that count time and patience."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace


def since_the_first_attempt(_original: Any) -> Any:
    """All time since the first attempt counts, whether a process was there or not."""

    def elapsed_ms(operation: Any, _situation: Any, now: Any) -> int:
        if not operation.attempts:
            return 0
        first = operation.attempts[0]
        since: int = now.up - first.up if first.boot == now.boot else now.wall - first.at
        return max(0, since)

    return elapsed_ms


def window_from_the_start(original: Any) -> Any:
    """A window counts from the moment at which an attempt began."""

    def landing_ms(attempts: Any, window_ms: int, situation: Any, now: Any) -> int | None:
        begun = tuple(
            replace(one, over_up=one.up, over_at=one.at, over_boot=one.boot) if one.over_up is not None else one
            for one in attempts
        )
        found: int | None = original(begun, window_ms, situation, now)
        return found

    return landing_ms


def strangers_take_places(original: Any) -> Any:
    """What is due of other programs takes places among the first, and is left out afterwards."""

    async def due(self: Any, agents: Any, limit: int, skip: Any = frozenset()) -> Any:
        everybody = {(row.agent, row.program) for row in await self.runs(limit=10_000)} | {*agents}
        rows = await original(self, everybody, limit, skip)
        return [row for row in rows if (row.agent, row.program) in agents]

    return due


def busy_costs_an_attempt(original: Any) -> Any:
    """An attempt at whose end the system was working on the key counts as any other."""

    def init(self: Any, operation: Any, situation: Any, now: Any) -> None:
        original(self, operation, situation, now)
        self.spent += sum(attempt.in_progress for attempt in operation.attempts)

    return init


def pauses_by_the_clock(_original: Any) -> Any:
    """A pause counts for as long as the clock says, and a question whose time is over by then is not asked again."""

    async def waited(scope: Any, _question: Any, patience: Any) -> bool:
        instance, environment = scope.instance, scope.instance.engine.environment
        pause = patience.pause_ms(environment.rng)
        if pause is None:
            return False
        before = instance.now().up
        await environment.clock.sleep(pause / 1000)
        took_ms = instance.now().up - before
        patience.paused(took_ms, took_ms)
        return patience.pause_ms(environment.rng) is not None

    return waited


def success(_original: Any) -> Any:
    """A success counts at once, whatever may still land."""

    def once_landed(_case: Any, move: Any) -> Any:
        return move

    return once_landed
