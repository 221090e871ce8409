"""Webhooks out, as use cases: the endpoints, and the state of each notice."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from beforehand.control.input_checks import checked_by
from beforehand.control.service import ControlService
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Post, RunRow
from beforehand.model.addresses import is_public
from beforehand.model.shell import to_type
from beforehand.model.system import is_system
from beforehand.model.webhooks import ENDPOINTS, TOOL, Endpoint, Note, endpoints
from beforehand.people.loaded_item import load_item

PAGE: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9_.]{1,40}")
Change = Literal["enable", "disable", "remove"]


class EndpointStatus(msgspec.Struct, frozen=True):
    """One endpoint, and how many notices it took, has not taken yet, and will not get any more.

    `given_up` names the runs of the last kind; `waiting` those of the second kind, with the result of the last try.
    """

    name: str
    url: str
    state: str
    kinds: list[str]
    delivered: int
    waiting: list[str]
    given_up: list[str]


class Webhooks:
    """Commands about endpoints."""

    def __init__(self, service: ControlService) -> None:
        self._service = service
        self._engine = service.engine

    async def add(self, note: Note) -> None:
        """Notify this endpoint from now on. One of that name is replaced. Raises `UsageError` for a bad address.

        Where its name leads is looked at before each try; `Settings(private_webhooks=True)` lets it lead inside.
        """
        await self._note(checked(note, private=self._engine.settings.private_webhooks))

    async def change(self, name: str, word: Change, *, by: str, why: str = "") -> None:
        """Enable or disable an endpoint. Raises `UsageError` where there is none of that name."""
        await self._known(name)
        await self._note(Note(word, name, checked_by(by), why))

    async def resend(self, name: str, *, by: str) -> int:
        """Order one more try of every notice that was given up, under its old id; how many there are.

        Those that are proven not to have arrived have ended, and are not among them. Raises `UsageError`.
        """
        if not (await self._known(name)).open:
            raise UsageError(
                f"{name} is disabled, so nothing is sent to it", next_step=to_type("webhooks", "enable", name)
            )
        given_up = [row.run for row in await runs_named(self._service.reader, _prefix(name)) if is_parked(row)]
        for run in given_up:
            item = await load_item(self._service.reader, f"{run}/{TOOL}{name}#1")
            await self._service.resolve(item.item, "same_key", by=by, shown=item.digest)
        return len(given_up)

    async def _known(self, name: str) -> Endpoint:
        known = await endpoints_of(self._service.reader)
        if name not in known or known[name].removed:
            names = ", ".join(one for one, found in known.items() if not found.removed)
            raise UsageError(f"endpoint {name} does not exist", known=f"endpoints: {names or 'none'}")
        return known[name]

    async def _note(self, note: Note) -> None:
        await self._engine.journal.commit(Post(ENDPOINTS, "", written(note)))
        await self._engine.outbox.refresh()


async def endpoints_of(reader: JournalReader) -> dict[str, Endpoint]:
    """Every endpoint there ever was, by name."""
    entries = await reader.journal.entries(ENDPOINTS)
    return endpoints((entry.id, note) for entry, note in await readable(reader.journal, entries, Note))


async def endpoint_statuses(reader: JournalReader) -> list[EndpointStatus]:
    """Each endpoint that was not removed, with the state of its notices."""
    statuses: list[EndpointStatus] = []
    for one in (await endpoints_of(reader)).values():
        if one.removed:
            continue
        delivered, waiting, given_up = 0, list[str](), list[str]()
        for row in await runs_named(reader, _prefix(one.name)):
            if row.status == "completed":
                delivered += 1
            else:
                (given_up if row.status in {"stopped", "undone"} or is_parked(row) else waiting).append(row.run)
        state = f"disabled: {one.disabled}" if one.disabled else "enabled"
        statuses.append(EndpointStatus(one.name, one.url, state, list(one.kinds), delivered, waiting, given_up))
    return statuses


def _prefix(name: str) -> str:
    return f"webhook-{name}-"


def is_parked(row: RunRow) -> bool:
    """True if the run is suspended until a person says what became of the notice it sent."""
    return row.status == "suspended" and any(wait.kind == "person" for wait in waits_of(row))


async def runs_named(reader: JournalReader, prefix: str) -> list[RunRow]:
    """The runs of the system itself whose names begin like that, in order."""
    found: list[RunRow] = []
    after = prefix
    while rows := await reader.journal.runs(limit=PAGE, after=after):
        found.extend(row for row in rows if row.run.startswith(prefix) and is_system(row.agent))
        if not rows[-1].run.startswith(prefix):
            break
        after = rows[-1].run
    return found


def checked(note: Note, *, private: bool) -> Note:
    """The note, if the endpoint is valid. Raises `UsageError`.

    Unless `private`, only https to a name or a public address: where a name leads is looked at before each try.
    """
    if not _NAME.fullmatch(note.name):
        raise UsageError(f"{note.name!r} cannot name an endpoint", next_step="use 1 to 40 letters, digits, _ or .")
    if not note.secrets:
        raise UsageError("an endpoint needs a secret", next_step="name the variable that holds it: whsec_...")
    host = host_of(note.url)
    if not host:
        raise UsageError(f"{note.url!r} is not a webhook address", next_step="give one like https://example.com/hooks")
    if not private and (not note.url.lower().startswith("https:") or not may_be_public(host)):
        raise UsageError(
            f"{note.url} is a private or unencrypted address, which is refused",
            next_step="give a public https address, or allow it with Settings(private_webhooks=True)",
        )
    return note


def host_of(address: str) -> str:
    """The host of an address that may be posted to; empty for an invalid address."""
    try:
        url = urlsplit(address)
        host, _ = url.hostname, url.port
    except ValueError:
        return ""
    plain = address.isascii() and address.isprintable() and " " not in address
    fits = url.scheme in ("https", "http") and url.username is None and not url.fragment and plain
    return host or "" if fits else ""


def may_be_public(host: str) -> bool:
    """True if a host may be public, as far as its name tells."""
    try:
        return is_public(host)
    except ValueError:
        return host != "localhost" and not host.endswith((".localhost", ".local", ".internal"))
