"""The health of the models of a route, as this process saw it: a circuit breaker for each.

A new process begins with healthy models. Nothing here is stored: the reason of a choice is recorded with the answer,
and a replay reads that.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.breaker import CLOSED, BreakerState, after_failure

LONGEST_PAUSE_MS: Final = 600_000
"""The longest time for which a model is not asked, whatever its service asks for."""


class ModelFailure(msgspec.Struct, frozen=True):
    """A failure of a model: the class of the error, its text, and the time for which the model is not asked."""

    model: str
    code: str
    reason: str
    wait_ms: int = 0


class ModelHealth:
    """The breakers of the models of a route, in this process."""

    def __init__(self) -> None:
        self._breakers: dict[str, tuple[BreakerState, ModelFailure]] = {}

    def paused(self, now_ms: int) -> dict[str, ModelFailure]:
        """The models that are not asked now. One that is paused for longer than is possible shows a changed clock."""
        failures = [replace(last, wait_ms=state.open_until_ms - now_ms) for state, last in self._breakers.values()]
        return {one.model: one for one in failures if 0 < one.wait_ms <= LONGEST_PAUSE_MS}

    def failed(self, failure: ModelFailure, retry_after: float | None, now_ms: int) -> None:
        """Count a failure of the service. It is not asked before the time that it asks for."""
        state = after_failure(self._breakers.get(failure.model, (CLOSED, failure))[0], now_ms)
        asked_ms = int(min(LONGEST_PAUSE_MS, (retry_after or 0) * 1000))
        until = max(state.open_until_ms, now_ms + asked_ms if asked_ms > 0 else 0)
        self._breakers[failure.model] = (replace(state, open_until_ms=until), failure)

    def answered(self, name: str) -> None:
        """Close the breaker."""
        self._breakers.pop(name, None)

    def forget(self) -> None:
        """Close all breakers."""
        self._breakers.clear()
