"""A struct that the garbage collector does not visit holds values only.

A struct declared with `gc=False` is not visited, so a cycle of references that passes through it is never freed. An
exception may close such a cycle: it holds the frames of its traceback, and these hold whatever the call worked with.
"""

import dataclasses
import importlib
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

import beforehand
import beforehand_console

FLAT = {bool, bytes, datetime, Decimal, float, int, msgspec.Raw, str, timedelta, type(None)}
COLLECTIONS = {dict, frozenset, list, Mapping, tuple}
"""Their members are looked at as well."""


def structs() -> list[type[msgspec.Struct]]:
    for package in (beforehand, beforehand_console):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".hosts." not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return [each for each in below(msgspec.Struct) if each.__module__.startswith("beforehand")]


def below(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def held(hint: Any) -> Iterator[Any]:
    """The classes whose objects a field of that type may hold."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return
    if isinstance(origin, type) and origin is not types.UnionType:
        yield origin
    if not members:
        yield hint
    for member in members:
        if member is not Ellipsis:
            yield from held(member)


def test_a_struct_that_the_collector_does_not_visit_holds_values_only():
    known = structs()
    names = {each.__name__: each for each in known}  # for those that a module imports for typing only
    unvisited = [each for each in known if not each.__struct_config__.gc]
    assert len(unvisited) > 100
    seen = set[type[Any]](unvisited)
    left = list[type[Any]](unvisited)
    while left:
        owner = left.pop()
        hints = typing.get_type_hints(owner, localns={**names, **vars(sys.modules[owner.__module__])})
        for field, hint in hints.items():
            for kind in held(hint):
                if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
                    left += {kind} - seen
                    seen.add(kind)
                else:
                    told = f"{owner.__name__}.{field} may hold {kind}, and is reached from a struct with gc=False"
                    assert kind in FLAT | COLLECTIONS, told
