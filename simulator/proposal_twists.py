"""What the planted bugs put in the place of the functions that execute plans."""

from __future__ import annotations

from typing import Any


def chosen_in_memory_only(_original: Any) -> Any:
    """What is chosen, and why, goes into no record."""

    async def chose(self: Any, chosen: Any) -> None:
        self._chosen[chosen.step] = chosen

    return chose


def next_one_unless_it_succeeded(_original: Any) -> Any:
    """Whatever a call came to, the next one is tried."""

    async def after_failure(*_args: Any) -> None:
        return

    return after_failure


def never_called_off(original: Any) -> Any:
    """No condition calls a plan off."""

    def holds(self: Any, step: Any, condition: str, *, after: bool = False) -> Any:
        return False if after else original(self, step, condition)

    return holds


def not_waiting(_original: Any) -> Any:
    """Steps wait for nothing but what they refer to."""

    def waits_for(self: Any, step: Any) -> tuple[str, ...]:
        del self, step
        return ()

    return waits_for
