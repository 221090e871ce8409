"""Notices by Apprise: one address of any service that it knows, from Telegram and Matrix to a pager.

Apprise says whether a notice was taken, and not why it was not: then the outcome is unknown, and it is not sent again
on a guess. It makes its own connections. If an address lets its writer choose the host, that host has to lead outside;
unlike for the other channels, the connection does not use the checked address.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from beforehand.engine.current_operation import current_operation
from beforehand.errors import Ambiguous, NotSent
from beforehand.installation import CONSOLE, extra_command
from beforehand.model.addresses import is_public
from beforehand.model.secret import Secret
from beforehand_console.notify.channel import SendContext, checked_name, hidden, revealed
from beforehand_console.notify.compose import Letter, title
from beforehand_console.notify.mail import plain_text
from beforehand_console.notify.schedule import Only, Pace

_LATER_S: Final = 3600
_TALKATIVE: Final = ("apprise", "urllib3.connectionpool", "urllib3.poolmanager", "urllib3.util.retry", "requests")


class Apprise(msgspec.Struct, frozen=True):
    """Any service that Apprise reaches, by its address there (`tgram://...`), which is a secret."""

    url: str | Secret
    name: str = "apprise"
    only: Only = Only()
    pace: Pace = Pace()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "url", hidden(self.url, f"{checked_name(self.name)}-url"))

    def __repr__(self) -> str:
        return f"Apprise({self.name!r})"

    @property
    def receiver(self) -> str:
        """The destination."""
        return f"Apprise {self.name}"

    def send(self, letter: Letter, outside: SendContext) -> str:
        """Send it once."""
        assert isinstance(self.url, Secret), "it was hidden when the channel was made"
        try:
            import apprise  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise NotSent(
                "this channel needs Apprise", retry_after=_LATER_S, next_step=extra_command("apprise", CONSOLE)
            ) from error
        with _silent():
            service: Any = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False))
            if not service.add(revealed(self.url)):
                raise NotSent(f"Apprise does not know the address of {self.name}", retry_after=_LATER_S)
            _check_manners(service)
            _check_hosts(service, private=outside.private)
            current_operation().check_send()
            try:
                taken: object = service.notify(
                    title=title(letter), body=plain_text(letter, outside), body_format=apprise.NotifyFormat.TEXT
                )
            except Exception as error:  # noqa: BLE001 - whatever ends the code of others is the end of this try
                raise Ambiguous(f"Apprise ended with {type(error).__name__}") from None  # its text may hold the address
        if not taken:
            raise Ambiguous(f"Apprise says that {self.name} was not reached, and not why")
        return "taken"


def _check_manners(service: Iterable[Any]) -> None:
    """Refuse an address that asks Apprise to try again by itself, or to call a failure a success. Raises `NotSent`."""
    if any(getattr(plugin, "retry", 0) or getattr(plugin, "optional", False) for plugin in service):
        raise NotSent(
            "an Apprise address says retry= or optional=",
            retry_after=_LATER_S,
            next_step="leave them out: a notice is tried again where nothing was sent, and only there",
        )


def _check_hosts(service: Iterable[Any], *, private: bool) -> None:
    """Check that the hosts that the address itself names lead outside. Raises `NotSent`."""
    for plugin in () if private else service:
        host = getattr(plugin, "host", None)
        if not isinstance(host, str) or not host or not hasattr(plugin, "port"):
            continue
        try:
            found = {str(where[4][0]) for where in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError) as error:
            raise NotSent("the host of an Apprise address cannot be resolved") from error
        if not all(is_public(address) for address in found):
            raise NotSent(
                "the host of an Apprise address is private", retry_after=_LATER_S,
                next_step="Settings(private_webhooks=True)",
            )  # fmt: skip


@contextmanager
def _silent() -> Generator[None]:
    """Suppress the logs of Apprise and its client meanwhile: they contain addresses.

    It works in threads of its own that outlive a call, so for that time messages of the same loggers about other
    connections are lost, too.
    """

    def nothing(_record: logging.LogRecord) -> bool:
        return False  # a function for each call: of two calls at once, the second ends its own silence

    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)
