"""Remembering what was done: from the journal, never from a conversation."""

from __future__ import annotations

from holdfast.engine import values
from holdfast.engine.loading import load
from holdfast.engine.scopes import Scope
from holdfast.model.claims import digest


async def receipts_digest(scope: Scope) -> str:
    """What is done and what is pending, as it was when this step was first taken."""
    instance = scope.instance
    await instance.settle_writes()
    text = digest(await load(instance.engine, instance.run))
    return await values.value(scope, "digest", lambda: text)
