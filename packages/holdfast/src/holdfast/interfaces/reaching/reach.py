"""`Reach`: everything an app is told about reaching people, as data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from holdfast.errors import UsageError
from holdfast.interfaces.reaching.channel import Channel
from holdfast.model.secret import Secret
from holdfast.people.links import checked_base

EVERY: Final = timedelta(seconds=10)


class Reach(msgspec.Struct, frozen=True):
    """Who is told when somebody is asked. `every`: how often to look for what waits.

    `base_url` is the address of the web inbox: with it, each notice has signed links. They are signed with `link_key`
    (at least 32 signs), else with what the variable HOLDFAST_LINK_KEY holds, where `holdfast serve` looks for it,
    too, else with a key that is made once and kept beside the journal. Raises `UsageError` for two channels of one
    name.
    """

    channels: tuple[Channel, ...]
    base_url: str = ""
    link_key: Secret | None = None
    every: timedelta = EVERY

    def __post_init__(self) -> None:
        if self.base_url:
            checked_base(self.base_url)
        if self.every <= timedelta(0):
            raise UsageError(f"every={self.every}: looking takes some time", next_step="give it at least a second")
        names = [channel.name for channel in self.channels]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UsageError(f"two channels are called {min(twice)}", next_step="give one of them another name")

    @property
    def by_name(self) -> Mapping[str, Channel]:
        """The channels by their names."""
        return {channel.name: channel for channel in self.channels}
