"""The interface of a channel: a name, what it receives and when, and a way to send one letter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from beforehand.errors import Ambiguous, NotSent, Rejected, UsageError
from beforehand.model.secret import Secret, SecretUnavailableError
from beforehand.webhooks.outgoing import host_of, may_be_public
from beforehand_console.notify.compose import Letter, LetterLine
from beforehand_console.notify.schedule import Only, Pace

_NAME: Final = re.compile(r"[A-Za-z0-9_.]{1,40}")
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SendContext(NamedTuple):
    """The context in which a channel sends.

    `marker` is the same on every try of one notice; `link` gives the signed link to an item, empty where there is no
    web inbox; `private` lets addresses be private ones; `clock_s` is the wall clock in seconds.
    """

    marker: str
    link: Callable[[LetterLine], str]
    private: bool
    clock_s: float


class Channel(Protocol):
    """One way to one receiver. `send` is called in a tool: what it raises says what is proven."""

    @property
    def name(self) -> str:
        """The name in `beforehand notices`."""
        ...

    @property
    def receiver(self) -> str:
        """The receiver, for a person's eyes; no secret."""
        ...

    @property
    def only(self) -> Only:
        """The filter of its items."""
        ...

    @property
    def pace(self) -> Pace:
        """The schedule of its messages."""
        ...

    def send(self, letter: Letter, outside: SendContext) -> str:
        """Send it once; returns what the receiver answered. Raises `NotSent`, `Rejected` or `Ambiguous`."""
        ...


def checked_name(name: str) -> str:
    """The name of a channel. Raises `UsageError`."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a channel", next_step="use 1 to 40 letters, digits, _ or .")
    return name


def hidden(value: str | Secret, name: str) -> Secret:
    """A secret that was given as a name or as itself. One that is given as itself stays in memory.

    Raises `UsageError` where a name looks like the secret itself, without repeating it.
    """
    if isinstance(value, Secret) and value.resolvable and not _VARIABLE.fullmatch(value.name):
        raise UsageError(
            f"the secret of the channel {name.rpartition('-')[0]} is given as a value instead of a name",
            next_step="put it into a variable such as SLACK_URL, and name that",
        )
    return value if isinstance(value, Secret) else Secret.of(value, name=name)


def revealed(secret: Secret) -> str:
    """The value of a secret, when it is sent. Raises `NotSent` if it is not known: the notice waits for it."""
    try:
        return secret.reveal()
    except SecretUnavailableError as error:
        raise NotSent(f"the secret {secret.name} is not set where notices are sent", retry_after=600) from error


def checked_address(address: str, what: str, *, private: bool) -> str:
    """The address of a chat, which is a secret. Raises `NotSent` without repeating it, where nothing may go there."""
    host = host_of(address)
    if not host:
        raise NotSent(
            f"the address of {what} is not valid",
            retry_after=3600,
            next_step="copy it again from the service that made it",
        )
    if not private and (not address.lower().startswith("https:") or not may_be_public(host)):
        raise NotSent(
            f"the address of {what} is private or unencrypted",
            retry_after=3600,
            next_step="give a public https address, or allow it with Settings(private_webhooks=True)",
        )
    return address


def judged(status: int, retry_after: float | None, what: str) -> str:
    """Classify the answer of a chat. 4xx: refused as a whole; 429: later; 5xx and redirects: unknown."""
    if 200 <= status < 300:
        return f"{status}"
    if status == 429:
        raise NotSent(f"{what} answered 429", retry_after=retry_after)
    if 400 <= status < 500:
        raise Rejected(f"{what} answered {status}", code=str(status))
    raise Ambiguous(f"{what} answered {status}")
