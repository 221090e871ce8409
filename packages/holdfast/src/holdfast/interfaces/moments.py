"""Moments as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(ms: int) -> str:
    """A wall clock in milliseconds, in UTC, to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
