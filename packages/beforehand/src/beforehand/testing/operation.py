"""Unit tests of one tool, without a run: `with beforehand.testing.operation(key="k"): refund.__wrapped__(...)`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

from beforehand.engine.current_operation import AT, CurrentOperation
from beforehand.model.secret import RESOLVER, resolver_from

LONG_MS = 60_000


@contextlib.contextmanager
def operation(
    key: str = "bh-test",
    *,
    step: str = "tool#1",
    attempt: int = 1,
    left_ms: int = LONG_MS,
    observed: Any = None,
    secrets: Mapping[str, str] | None = None,
) -> Generator[CurrentOperation]:
    """Provide a `current_operation()` inside the block, and resolve secrets to the given values.

    `left_ms` is the time until the send-by deadline. With zero or less, `check_send()` raises. The yielded value is the
    operation that the tool receives; its `key_read` and `sends` show afterwards what the tool did.
    """
    current = CurrentOperation("test", step, step.partition("#")[0], attempt, lambda: left_ms, lambda: key)
    current.observed = observed
    at = AT.set(current)
    resolver = RESOLVER.set(resolver_from(secrets or {}))
    try:
        yield current
    finally:
        RESOLVER.reset(resolver)
        AT.reset(at)
