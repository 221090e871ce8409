"""Journaled values: the time, chance, identifiers, and which side of a code change a run is on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from holdfast.engine.boundary import sealing
from holdfast.engine.refusing import refuse
from holdfast.engine.scopes import Scope
from holdfast.engine.transactions import may_begin
from holdfast.model import records as r

T = TypeVar("T", int, float, str, dict[str, Any])


@sealing
async def value(scope: Scope, what: str, fresh: Callable[[], T | Awaitable[T]], step: str | None = None) -> T:
    """What `fresh` gave the first time this step was taken. It may wait; what it reads must have no effect outside."""
    if scope.instance.closed:
        await refuse(scope)
    return await value_at(scope, scope.step(what, step), what, fresh)


async def value_at(scope: Scope, name: str, what: str, fresh: Callable[[], T | Awaitable[T]]) -> T:
    """As `value`, for the step of that name."""
    instance = scope.instance
    recorded = instance.history.answers.get(name)
    if recorded is None:
        if instance.history.transactions:
            await may_begin(scope, name)
        made = fresh()
        stored = r.Raw(msgspec.json.encode(await made if isinstance(made, Awaitable) else made))
        recorded = r.ValueRecorded(step=name, what=what, value=stored, **instance.stamp())
        instance.ride(recorded)
    await instance.take_turn(scope, name)
    instance.forget(name)
    if not isinstance(recorded, r.ValueRecorded) or recorded.what != what:
        instance.diverge(f"{name} came back as {what}")
    answer: T = msgspec.json.decode(recorded.value)
    return answer


async def version(scope: Scope, change: str, newest: int) -> int:
    """0 where the record already goes on past this point without a marker: the old code passed here."""
    instance = scope.instance
    name = f"{scope.path}version:{change}#{scope.counts.get(f'{scope.path}version:{change}', 0) + 1}"
    if name not in instance.history.answers and instance.replaying():
        scope.counts[f"{scope.path}version:{change}"] = scope.counts.get(f"{scope.path}version:{change}", 0) + 1
        return 0
    return await value(scope, f"version:{change}", lambda: newest)
