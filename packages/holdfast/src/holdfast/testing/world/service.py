"""A test's own fakes, which count their own effects, and how their state is passed from process to process."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any, Protocol, cast

import msgspec

from holdfast.errors import UsageError

_Named = dict[str, Any] | None


class Service(Protocol):
    """A fake system of a test. It counts its own effects.

    One whose state is in a file or in a server, and not in the object, declares this under `--holdfast-sigkill` by the
    attribute `lives_outside = True`: it is asked in the test's own process alone.
    """

    def effects(self) -> list[str]:
        """The effects of the service, in order; equal texts are equal effects."""
        ...

    def reset(self) -> None:
        """Forget everything: the next run starts in a new world."""
        ...


class State(msgspec.Struct, frozen=True):
    """The state of a service, and its count of effects."""

    packed: bytes
    effects: list[str]


def state_of(service: Service) -> State | None:
    """The state for another process; None if it lives outside. Raises `UsageError` if it cannot be passed on."""
    if getattr(service, "lives_outside", False):
        return None
    return State(packed(type(service).__name__, service.__getstate__()), list(service.effects()))


def restore(service: Service, state: State | None) -> None:
    """Restore in place what unpickling would build anew: tools and tests know this object.

    Raises `UsageError` if its count differs afterwards.
    """
    if state is None:
        return
    _set(service, unpacked(state.packed))
    if list(service.effects()) != state.effects:
        raise UsageError(
            f"{type(service).__name__} keeps what it counts elsewhere, so that it dies with a killed process",
            next_step="keep it in the object's own attributes, or in a file or a server, and say lives_outside = True",
        )


def packed(what: str, value: object) -> bytes:
    """The bytes of a value. Raises `UsageError` if it cannot leave its process."""
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise UsageError(
            f"{what} cannot outlive a killed process: {error}",
            next_step="define its classes at the top of a module; leave open files and sockets out (__getstate__)",
        ) from error


def packed_if_possible(value: object) -> bytes | None:
    """The bytes of a value; None if it cannot leave its process."""
    with contextlib.suppress(UsageError):
        return packed("a value", value)
    return None


def unpacked(value: bytes) -> Any:
    """The value that a process of ours packed."""
    return pickle.loads(value)  # noqa: S301 - it came through a pipe from our own child


def _set(service: object, state: Any) -> None:
    own_way = getattr(service, "__setstate__", None)
    if own_way is not None:
        own_way(state)
        return
    own, slots = cast("tuple[_Named, _Named]", state) if isinstance(state, tuple) else (cast("_Named", state), None)
    if own is not None:
        vars(service).clear()
        vars(service).update(own)
    for name, value in slots.items() if slots else ():
        setattr(service, name, value)
