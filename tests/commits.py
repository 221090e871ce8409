"""Commits that a test intercepts: a slow disk, a failure, or what happens just before or after one of them."""

from collections.abc import Awaitable, Callable
from typing import Any

Commit = Callable[[Any], Awaitable[Any]]


def intercept(journal: Any, kind: type, around: Callable[[Any, Commit], Awaitable[Any]]) -> Callable[[], None]:
    """Let `around` commit each request of this kind, with the journal's own `commit`. Returns what ends it."""
    commit = journal.commit

    async def intercepted(request: Any) -> Any:
        return await (around(request, commit) if isinstance(request, kind) else commit(request))

    vars(journal)["commit"] = intercepted
    return lambda: vars(journal).update(commit=commit)
