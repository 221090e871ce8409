"""One planted bug: a name, what it breaks, and what stands in the place of a part of the product while it is planted.

None of this is in the product's own code path.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from importlib import import_module
from typing import Any

import msgspec

Twist = Callable[[Any], Any]
"""From the original (a function, a method, a tuple of rules) to what stands in its place."""


def always(value: object) -> Twist:
    """Whatever is asked, answer this."""

    def answer(*_args: object, **_named: object) -> object:
        return value

    return lambda _original: answer


def never_mind(_original: object) -> Any:
    """An async function that does nothing."""

    async def nothing(*_args: object, **_kwargs: object) -> None:
        return

    return nothing


def replaced(name: str, twist: Twist) -> Twist:
    """One rule of a tuple of rules, twisted."""
    return lambda rules: tuple(twist(rule) if rule.__name__ == name else rule for rule in rules)


class Mutant(msgspec.Struct, frozen=True):
    """One planted bug: `place` is `module:attribute`, and `twist` what becomes of it.

    Every bug is looked for in the seeds from `from_seed` on: each kind of plan (hosts, queues, budgets) has its own
    range. One that no seed is known to find names the `test` that does.
    """

    name: str
    breaks: str
    place: str
    twist: Twist
    from_seed: int = 0
    test: str = ""


@contextlib.contextmanager
def planted(mutant: Mutant) -> Generator[None]:
    """Plant the bug everywhere where its names were imported, and take it out again."""
    owner, name = _owner(mutant.place)
    original: Any = owner.__dict__[name]
    twisted = mutant.twist(original)
    holders = _holders(owner, name, original)
    try:
        for holder in holders:
            setattr(holder, name, twisted)
        yield
    finally:
        for holder in holders:
            setattr(holder, name, original)


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    return owner, name


def _holders(owner: Any, name: str, original: object) -> list[Any]:
    """The owner, and every module of the product that imported the same object under that name."""
    names = sorted(name for name in (*sys.modules,) if name.startswith("beforehand."))
    modules = [sys.modules[name] for name in names]
    return [owner, *(module for module in modules if module is not owner and vars(module).get(name) is original)]
