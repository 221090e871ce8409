"""Addresses of journals, and the back end behind each scheme. No other module knows the back ends.

    desk.db, /var/lib/desk.db, sqlite:///var/lib/desk.db    an SQLite file, through Python's own library
    sqlite+apsw:///var/lib/desk.db                          the same file format, through apsw (an extra)
    memory:                                                 a journal that ends with its process

Another distribution adds a back end by an entry point of the group `beforehand.journals`: its name is the scheme, and
its value is an object like `Backend`, whose journals pass `beforehand.testing.conformance`. It never replaces ours.
`testing.world` makes its own journals, over a disk that can fail; they have no address.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from beforehand.errors import UsageError
from beforehand.journal.port import Journal, Reader


@runtime_checkable
class Backend(Protocol):
    """A way to store journals. A `place` is the part of an address behind its scheme, which the back end reads."""

    @property
    def lasting(self) -> bool:
        """False: a journal ends with the process that opened it, so that no command can find it."""
        ...

    @property
    def reads_wait(self) -> bool:
        """True: a read may suspend its caller, so that a command which only reads needs an event loop."""
        ...

    def checked(self, place: str) -> str:
        """The place in its usual form. Raises `UsageError` for an invalid one."""
        ...

    def journal(self, place: str) -> Journal: ...

    def reader(self, place: str) -> Reader: ...

    def exists(self, place: str) -> bool:
        """False: there is no journal yet, and opening would create one."""
        ...

    def same(self, place: str, other: str) -> bool:
        """True: both lead to one journal."""
        ...

    def below(self, place: str, directory: Path) -> str:
        """The place as it is meant in a file of that directory."""
        ...

    def shown(self, place: str) -> str:
        """The place in the shortest form that works in the current directory."""
        ...

    def found_in(self, directory: Path) -> list[str]:
        """The places of the journals in a directory, by name."""
        ...


_PLAIN: Final = "sqlite"
"""The scheme of an address that names none."""

BUILT_IN: Final[dict[str, str]] = {
    "sqlite": "beforehand.journal.sqlite.backend:STANDARD",
    "sqlite+apsw": "beforehand.journal.sqlite.backend:APSW",
    "memory": "beforehand.journal.memory:IN_MEMORY",
}
"""The back ends of this distribution, by scheme. A process imports those that it uses."""
GROUP: Final = "beforehand.journals"
"""The group of entry points by which other distributions add theirs."""
_FORMS: Final = "a path such as desk.db, sqlite:///var/lib/desk.db, sqlite+apsw:///var/lib/desk.db, or memory:"


class Address(msgspec.Struct, frozen=True):
    """Where a journal is. The back end of the scheme reads the place."""

    scheme: str
    place: str

    @property
    def lasting(self) -> bool:
        """False for a journal that ends with the process that opened it."""
        return self._backend.lasting

    @property
    def reads_wait(self) -> bool:
        """True where reading needs an event loop."""
        return self._backend.reads_wait

    def __str__(self) -> str:
        """The address in the shortest form that works in the current directory."""
        place = self._backend.shown(self.place)
        return place if self.scheme == _PLAIN else self._in_full(place)

    def exists(self) -> bool:
        """True where there is a journal already; opening creates one."""
        return self._backend.exists(self.place)

    def leads_to(self, other: Address) -> bool:
        """True where both addresses find the same journal in the same way."""
        return self.scheme == other.scheme and self._backend.same(self.place, other.place)

    def below(self, directory: Path) -> Address:
        """The address as it is meant in a file of that directory."""
        return Address(self.scheme, self._backend.below(self.place, directory))

    def journal(self) -> Journal:
        """The journal, still to be opened."""
        return self._backend.journal(self.place)

    def reader(self) -> Reader:
        """The journal for reading, still to be opened. Raises `UsageError` where no other process can read it."""
        return self._backend.reader(self.place)

    @property
    def _backend(self) -> Backend:
        return _backend_of(self.scheme)

    def _in_full(self, place: str) -> str:
        return f"{self.scheme}://{place}" if place or self.scheme != "memory" else "memory:"


def open_journal(address: str | os.PathLike[str] | Address) -> Journal:
    """The journal at an address; its own `open` then opens or creates it. Raises `UsageError`."""
    return address_of(address).journal()


def address_of(given: str | os.PathLike[str] | Address) -> Address:
    """An address as a value. Raises `UsageError` for a scheme that no back end has, or a place that it cannot have."""
    if isinstance(given, Address):
        return given
    text = os.fspath(given)
    scheme, separator, place = text.partition("://")
    if text == "memory:":
        scheme, place = "memory", ""
    elif not separator:
        scheme, place = _PLAIN, text
    try:
        backend = _backend_of(scheme)
    except UnknownScheme as error:
        raise UsageError(
            f"no back end opens the journal {text!r}",
            known=f"schemes: {', '.join((*BUILT_IN, *error.installed))}",
            next_step=f"give {_FORMS}; or install the distribution that has the back end",
        ) from None
    return Address(scheme, backend.checked(place))


def addresses_in(directory: Path) -> list[Address]:
    """The journals in a directory, by name."""
    return [Address(_PLAIN, place) for place in _backend_of(_PLAIN).found_in(directory)]


def _backend_of(scheme: str) -> Backend:
    if scheme not in BUILT_IN:
        return _installed(scheme)
    module, _, name = BUILT_IN[scheme].partition(":")
    backend: Backend = getattr(import_module(module), name)
    return backend


class UnknownScheme(LookupError):
    """Neither this distribution nor an installed one has a back end of that scheme."""

    def __init__(self, installed: list[str]) -> None:
        super().__init__(installed)
        self.installed: Final = installed


@cache  # an address asks for its back end often, and a look-up costs milliseconds
def _installed(scheme: str) -> Backend:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few addresses need it

    found = {one.name: one for one in entry_points(group=GROUP)}
    if scheme not in found:
        raise UnknownScheme(sorted(found))
    point, reinstall = found[scheme], "install the distribution that has it again, or report this to its authors"
    try:
        backend = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the back end of {scheme}:// cannot be loaded: {error}", known=f"it is {point.value}", next_step=reinstall
        ) from error
    if not isinstance(backend, Backend):
        lacks = [name for name in vars(Backend) if not name.startswith("_") and not hasattr(backend, name)]
        raise UsageError(
            f"{point.value} is not a back end of journals: it lacks {', '.join(lacks)}", next_step=reinstall
        )
    return backend
