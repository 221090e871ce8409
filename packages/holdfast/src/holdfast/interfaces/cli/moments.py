"""Moments and lengths of time as people type them: `90m`, `12h`, `7d`, a date, or a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.errors import UsageError

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_moment(text: str, now_ms: int) -> int:
    """A moment to come, on the wall clock, in milliseconds. Raises `UsageError`."""
    return _moment(text, now_ms, 1)


def read_past(text: str, now_ms: int) -> int:
    """A moment that is over, likewise: `2h` is two hours ago. Raises `UsageError`."""
    return _moment(text, now_ms, -1)


def _moment(text: str, now_ms: int, direction: int) -> int:
    """From now, or a date or time, in UTC where no zone is given."""
    unit = _UNITS.get(text[-1:])
    try:
        if unit is not None:
            return now_ms + direction * (timedelta(**{unit: float(text[:-1])}) // timedelta(milliseconds=1))
        then = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is not a time", next_step="write 12h, 7d, 2027-01-31 or 2027-01-31T12:00"
        ) from error
    return int((then if then.tzinfo is not None else then.replace(tzinfo=UTC)).timestamp() * 1000)
