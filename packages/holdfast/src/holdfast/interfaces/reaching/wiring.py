"""What an app puts in for reaching people: the system's agent and tools, the keys of links, and who plans."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.control.service import Service
from holdfast.engine.engine import Engine
from holdfast.engine.seams import Rng
from holdfast.errors import UsageError
from holdfast.interfaces.reaching.channel import Channel
from holdfast.interfaces.reaching.planning import Planner
from holdfast.interfaces.reaching.reach import Reach
from holdfast.interfaces.reaching.sending import Sender, Web
from holdfast.interfaces.signing_keys import SigningKeys, first_keys
from holdfast.journal.port import Journal
from holdfast.model.secret import SecretUnavailableError, resolver_from
from holdfast.people.links import file_of, given_keys, keys_of


class Reaching:
    """Reaching people, as one app does it."""

    def __init__(self, given: Reach | Iterable[Channel] | str | os.PathLike[str], journal: Journal, rng: Rng) -> None:
        self.reach: Final = as_reach(given)
        web = Web(self.reach.base_url, link_keys(self.reach, journal, rng)) if self.reach.base_url else Web()
        self.sender: Final = Sender(self.reach.by_name, web)

    def begin(self, engine: Engine) -> Planner:
        """Take part: who plans from now on."""
        self.sender.engine = engine
        return Planner(Service(engine), self.reach, self.sender)


def as_reach(given: Reach | Iterable[Channel] | str | os.PathLike[str]) -> Reach:
    """What was given, as one value; a path is read. Raises `UsageError`."""
    if isinstance(given, Reach):
        return given
    if isinstance(given, str | os.PathLike):
        from holdfast.interfaces.reaching.loading import load_reach  # noqa: PLC0415 - an extra reads it

        return load_reach(Path(given))
    return Reach(tuple(given))


def link_keys(reach: Reach, journal: Journal, rng: Rng) -> SigningKeys:
    """The keys that sign links: as given, else those beside the journal, made when they are first wanted."""
    if reach.link_key is not None:
        key = reach.link_key
        try:
            return given_keys(key.reveal() if not key.resolvable else resolver_from(os.environ)(key.name))
        except SecretUnavailableError as error:
            raise UsageError(f"the link key {key.name} is not set") from error
    if (found := keys_of(journal)) is not None:
        return found
    path = file_of(journal)
    if path is None:
        raise UsageError(
            "a journal that is no file keeps no link key beside it", next_step="give one: Reach(link_key=Secret(...))"
        )
    return first_keys(path, rng.token() + rng.token())
