"""How long a model that does not answer is asked again, and after which pauses.

An outage is waited out by time. Only time in which the model could have been asked counts: a pause or a call is never
counted as longer than it was meant to be, however far the clock has gone on meanwhile, and a try follows every pause.
"""

from __future__ import annotations

import math
from typing import Final

from holdfast.engine.environment import Rng
from holdfast.engine.exceptions.http import retry_after, status_code
from holdfast.errors import HoldfastError
from holdfast.policies import DECISION_RETRY, Retry, milliseconds

REFUSALS: Final = 5
"""How often a question is asked that is not answered for a reason other than an outage, where code sets no `retry`."""
_LATER: Final = frozenset({408, 409, 425, 429})
_FAULTS: Final = (
    ArithmeticError, AssertionError, AttributeError, HoldfastError, ImportError, LookupError, NameError,
    NotImplementedError, TypeError, ValueError,
)  # fmt: skip


class Patience:
    """The tries of one decision. `tries` counts those of earlier processes too; time is counted in this one."""

    def __init__(self, wanted: Retry | None, tries: int, limit_ms: int) -> None:
        self.retry: Final = wanted or DECISION_RETRY
        self.tries = tries
        self.why = ""
        self.told = False
        self._limit_ms = limit_ms
        self._refusals = 0
        self._most_refusals = REFUSALS if wanted is None else self.retry.attempts
        self._spent_ms = 0.0
        self._asked_ms = 0.0

    @property
    def tries_left(self) -> bool:
        """Whether one more try is allowed."""
        return self.tries < self.retry.attempts

    def failed(self, error: Exception, why: str, took_ms: int) -> None:
        """Count a try that failed."""
        self.why = why
        self._spent_ms += min(took_ms, self._limit_ms)
        self._refusals += 0 if is_outage(error) else 1
        self._asked_ms = _asked_s(error) * 1000

    def pause_ms(self, rng: Rng) -> float | None:
        """How long to wait before the next try; None where there is none."""
        left = milliseconds(self.retry.elapsed) - self._spent_ms
        if not self.tries_left or self._refusals >= self._most_refusals or left <= 0:
            return None
        if self._asked_ms > left:
            self.why += f" (it asks to be tried again in {self._asked_ms / 1000:.0f} s)"
            return None
        drawn = rng.uniform(0, self.retry.ceiling_ms(max(0, self.tries - 1)))
        if self._asked_ms:  # spread, so that not everybody comes back in the same moment
            return self._asked_ms + min(drawn, milliseconds(self.retry.base))
        return min(drawn, left)

    def paused(self, meant_ms: float, took_ms: int) -> None:
        """Count a pause."""
        self._spent_ms += min(meant_ms, took_ms)


def _asked_s(error: BaseException) -> float:
    """After how many seconds the service asks to be tried again, as the error or its cause says; 0: it does not."""
    at: BaseException | None = error
    for _ in range(4):
        if at is None:
            break
        named: object = getattr(at, "retry_after", None)
        asked = retry_after(at) if not isinstance(named, (int, float)) else float(named)
        if asked is not None and math.isfinite(asked):
            return max(0.0, asked)
        at = at.__cause__ or at.__context__
    return 0.0


def is_outage(error: Exception) -> bool:
    """Whether asking again may help by itself. An answer that does not fit, a refusal or a bug is no outage."""
    if isinstance(error, _FAULTS) and not isinstance(error, OSError):
        return False
    status = status_code(error)
    named: object = getattr(error, "status_code", None) if status is None else status
    return not (isinstance(named, int) and 400 <= named < 500 and named not in _LATER)
