"""Keeping the text of each policy that rules here, once for each version: a ruling names a rule, and rules change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.journal.port import Post
from holdfast.model.ids import parts_of, stream

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.judging import PolicyCode

POLICIES: Final = "policies/"
_TEXT: Final = "text"


def policy_stream(version: str) -> str:
    """The ledger stream that holds what this version says."""
    return stream("policies", version)


def version_of_stream(name: str) -> str:
    """The other way round."""
    return parts_of(name)[1]


async def keep_text(engine: Engine, policy: PolicyCode) -> None:
    """Put it into the ledger before the first ruling by it. Once it is there it costs nothing."""
    if policy.version in engine.policies_kept:
        return
    name = policy_stream(policy.version)
    if not await engine.journal.entries(name):
        await engine.journal.post(Post(name, _TEXT, policy.text))
    engine.policies_kept.add(policy.version)
