"""The health of the models of a route, as this process saw it: circuit breakers, and how long answers take.

A new process begins with healthy models that were not measured. Nothing here is stored: the reason of a choice is
recorded with the answer, with its figures, and a replay reads that.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.engine.breaker import CLOSED, BreakerState, after_failure

LONGEST_PAUSE_MS: Final = 600_000
"""The longest time for which a model is not asked, whatever its service asks for."""
MEASURED_FOR_S: Final = 600.0
"""How long a measured time counts. Then one call measures it again: otherwise a slow model is never asked again."""
_WEIGHT: Final = 0.25
"""The weight of the newest answer in the average."""


class ModelFailure(msgspec.Struct, frozen=True):
    """A failure of a model: the class of the error, its text, and the time for which the model is not asked."""

    model: str
    code: str
    reason: str
    wait_ms: int = 0


class _Measured(msgspec.Struct, frozen=True):
    """The average time of the answers of a model, and the moment of the last one, or of a call that measures anew."""

    seconds: float
    at: float
    anew: bool = False


class ModelHealth:
    """The breakers and the measured times of the models of a route, in this process."""

    def __init__(self) -> None:
        self._breakers: dict[str, tuple[BreakerState, ModelFailure]] = {}
        self._measured: dict[str, _Measured] = {}

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

    def seconds(self, at: float) -> dict[str, float]:
        """The measured time of each model whose figure counts at this moment of the loop's clock."""
        return {name: one.seconds for name, one in self._measured.items() if 0 <= at - one.at <= MEASURED_FOR_S}

    def asked(self, name: str, at: float) -> None:
        """Note that a model is asked. A figure that is too old counts for all other calls until this one has ended."""
        if (one := self._measured.get(name)) is not None and not 0 <= at - one.at <= MEASURED_FOR_S:
            self._measured[name] = replace(one, at=at, anew=True)

    def took(self, name: str, seconds: float, at: float) -> None:
        """Count the time of an answer."""
        known = self._measured.get(name)
        before = seconds if known is None or known.anew else known.seconds
        self._measured[name] = _Measured(before + _WEIGHT * (seconds - before), at)

    def forget(self) -> None:
        """Close all breakers, and forget all measured times."""
        self._breakers.clear()
        self._measured.clear()
