"""Ports for other distributions, which extend the runtime by entry points. The runtime imports none of them.

| group | entry | value |
|---|---|---|
| `beforehand.commands` | the name of a command | a `click` command, declared like ours (`cli.common.command`) |
| `beforehand.command_parts` | `answer.planted`, `dev.inbox`, `inbox.health` | the function behind a part of ours |
| `beforehand.notifications` | `reach` | makes a `NotificationSource` of the value given to `Beforehand(reach=...)` |
| `beforehand.ledger_kinds` | any | the types of ledger streams, as in `ledger_kinds.KINDS` |
| `beforehand.policies` | the name of a policy | a `Policy`, the path of its file, or a function that returns either |
| `beforehand.exceptions` | any | a classifier of exceptions (`engine.exceptions.call_end` looks these up itself) |
| `beforehand.journals` | the scheme of an address | a `journal.backends.Backend` (that module looks these up itself) |

`beforehand-console` fills the first four; its `policy calibrate` is a command of two words. Entry points are looked up
when they are needed: a look-up costs some milliseconds, and most commands need none.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

from beforehand.installation import CONSOLE, console_command
from beforehand.model.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from beforehand.agent.agent import Agent
    from beforehand.agent.tool import Tool
    from beforehand.engine.engine import Engine

OF_CONSOLE: Final = {
    "beforehand.commands": {"accounts", "figures", "notices", "plant", "policy calibrate", "serve", "shadow-reviews"},
    "beforehand.command_parts": {"answer.planted", "dev.inbox", "inbox.health"},
    "beforehand.notifications": {"reach"},
}
"""The entries that the console provides, so that an error can name it where it is missing."""
INSTALLED: Final = "installed:"
"""The prefix that names the policy of an installed distribution: `installed:refunds`."""


def extensions(group: str) -> Iterator[EntryPoint]:
    """The entry points of one group, each name once."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import, and few commands ask

    found = {one.name: one for one in entry_points(group=group)}
    return iter(found.values())


def has_extension(group: str, name: str) -> bool:
    """True if an installed distribution has this entry point."""
    return any(one.name == name for one in extensions(group))


def extension(group: str, name: str, wanted: str) -> Any:
    """The value of an entry point. Raises `UsageError`, naming `wanted`, if no installed distribution has it."""
    for one in extensions(group):
        if one.name == name:
            return _loaded(one, wanted)
    if name in OF_CONSOLE.get(group, ()):
        raise UsageError(f"{wanted} needs {CONSOLE}, which is not installed", next_step=console_command())
    raise UsageError(
        f"no installed distribution provides {wanted}",
        known=f"it would be the entry point {name} of the group {group}",
        next_step="install the distribution that has it",
    )


def installed_policy(name: str) -> Any:
    """The value of the entry point of this policy. Raises `UsageError` if no installed distribution has it."""
    known: list[str] = []
    for one in extensions("beforehand.policies"):
        if one.name == name:
            return _loaded(one, f"the policy {name}")
        known.append(one.name)
    raise UsageError(
        f"no installed distribution has a policy named {name}",
        known=f"installed policies: {', '.join(sorted(known)) or 'none'}",
        next_step="install the distribution that has it, or name a policy file",
    )


def _loaded(one: EntryPoint, wanted: str) -> Any:
    try:
        return one.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{wanted} cannot be loaded: {error}",
            known=f"it is {one.value}",
            next_step=f"install {one.dist.name if one.dist else 'it'} again, or report this to its authors",
        ) from error


# --- notifications ---------------------------------------------------------------------------------------------------


class Notifications(Protocol):
    """How one app notifies people: each notification is a run of `agent`, and is sent by the tool of its channel."""

    @property
    def agent(self) -> Agent[Any, Any]:
        """The agent of the runs that send."""
        ...

    @property
    def tool_prefix(self) -> str:
        """The prefix of its tools' names; the name of a channel follows."""
        ...

    def tool_for(self, channel: str, /) -> Tool[Any, Any]:
        """The tool that sends through one channel."""
        ...

    def begin(self, engine: Engine, /) -> Callable[[], Awaitable[None]]:
        """Take part in an open engine. An app calls the returned function repeatedly: it sends what is due.

        Raises `UsageError` where it lacks something there, such as a key that signs links.
        """
        ...


@runtime_checkable
class NotificationSource(Protocol):
    """Makes the notifications of an app: a value for `Beforehand(reach=...)`."""

    def notifications(self) -> Notifications:
        """The notifications of an app. Raises `UsageError`."""
        ...


Reachable: TypeAlias = "NotificationSource | Iterable[Any] | str | os.PathLike[str]"
"""The values that `Beforehand(reach=...)` accepts: a source, channels, or the path of a `reach.yaml`."""


def notifications_of(given: Reachable) -> Notifications:
    """The notifications that an app was given. Raises `UsageError`."""
    if isinstance(given, NotificationSource):
        return given.notifications()
    source: NotificationSource = extension("beforehand.notifications", "reach", "a notification channel (reach)")(given)
    return source.notifications()
