"""Agent code never learns that the journal failed: it could catch the error and go on unrecorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.engine.scopes import Scope
from holdfast.errors import JournalError, RecordRefused

P = ParamSpec("P")
R = TypeVar("R")


def sealing(
    step: Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Scope, P], Coroutine[Any, Any, R]]:
    """A step of agent code that ends its instance, and raises `Sealed`, where the journal fails it."""

    @functools.wraps(step)
    async def guarded(scope: Scope, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await step(scope, *args, **kwargs)
        except RecordRefused:
            raise  # this one record does not fit; the journal is well
        except JournalError as error:
            raise scope.instance.fail(error) from error

    return guarded
