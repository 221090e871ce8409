"""`Reach`: the channels, links and keys by which an app notifies people."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from beforehand.control.service import ControlService
from beforehand.engine.engine import Engine
from beforehand.engine.environment import Rng
from beforehand.errors import UsageError
from beforehand.inspect.signing_keys import SigningKeys, first_keys
from beforehand.journal.port import Identity
from beforehand.model.secret import Secret, SecretUnavailableError, resolver_from
from beforehand_console.links import KEYS, checked_base, given_keys, keys_of
from beforehand_console.notify.channel import Channel
from beforehand_console.notify.planner import NoticePlanner
from beforehand_console.notify.schedule import TOOL
from beforehand_console.notify.sender import NoticeSender

EVERY: Final = timedelta(seconds=10)


class Reach(msgspec.Struct, frozen=True):
    """The channels that are notified of questions. `every`: how often to look for open items; 10 seconds by default.

    `base_url` is the address of the web inbox: with it, each notice has signed links. They are signed with `link_key`
    (at least 32 characters), else with the variable BEFOREHAND_LINK_KEY, which `beforehand serve` reads as well, else
    with a key that is made once and kept beside the journal. Raises `UsageError` for two channels of one name.
    """

    channels: tuple[Channel, ...]
    base_url: str = ""
    link_key: Secret | None = None
    every: timedelta = EVERY

    def __post_init__(self) -> None:
        if self.base_url:
            checked_base(self.base_url)
        if self.every <= timedelta(0):
            raise UsageError(f"every={self.every}: the interval is too short", next_step="give it at least a second")
        names = [channel.name for channel in self.channels]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UsageError(f"two channels are called {min(twice)}", next_step="give one of them another name")

    @property
    def by_name(self) -> Mapping[str, Channel]:
        """The channels by their names."""
        return {channel.name: channel for channel in self.channels}

    def notifications(self) -> ReachNotifications:
        """The notifications of one app: `Beforehand(reach=...)` asks for them."""
        return ReachNotifications(self, NoticeSender(self.by_name, self.base_url))


class ReachNotifications:
    """How one app notifies people by a `Reach`."""

    def __init__(self, reach: Reach, sender: NoticeSender) -> None:
        self._reach: Final = reach
        self._sender: Final = sender
        self.agent: Final = sender.agent
        self.tool_prefix: Final = TOOL
        self.tool_for: Final = sender.tool_for

    def begin(self, engine: Engine) -> Callable[[], Awaitable[None]]:
        """Take part in an open engine; the function that is returned plans and sends what is due."""
        self._sender.engine = engine
        if self._reach.base_url:
            self._sender.keys = link_keys(self._reach, engine.identity, engine.environment.rng)
        return NoticePlanner(ControlService(engine), self._reach, self._sender).run


def reach_from(given: Iterable[Channel] | str | os.PathLike[str]) -> Reach:
    """The `Reach` of these channels, or of a file. Raises `UsageError`."""
    if isinstance(given, str | os.PathLike):
        from beforehand_console.notify.reach_file import load_reach  # noqa: PLC0415 - an extra reads it

        return load_reach(Path(given))
    return Reach(tuple(given))


def link_keys(reach: Reach, identity: Identity, rng: Rng) -> SigningKeys:
    """The keys that sign links: as given, else those beside the journal, made when they are first wanted."""
    if reach.link_key is not None:
        key = reach.link_key
        try:
            return given_keys(key.reveal() if not key.resolvable else resolver_from(os.environ)(key.name))
        except SecretUnavailableError as error:
            raise UsageError(f"the link key {key.name} is not set") from error
    if (found := keys_of(identity)) is not None:
        return found
    path = identity.sidecar(KEYS)
    if path is None:
        raise UsageError(
            "a journal that is not a file has no link key beside it", next_step="give one: Reach(link_key=Secret(...))"
        )
    return first_keys(path, rng.token() + rng.token())
