"""Secrets as arguments: the name travels and is recorded, the value is fetched where it is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, Self, final

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/:-]{0,127}")


class SecretUnavailableError(LookupError):
    """The value of a secret could not be found; the text holds its name and never its value."""


def resolver_from(variables: Mapping[str, str]) -> Callable[[str], str]:
    """A resolver over environment variables: `name` itself, or `payments-api-key` as PAYMENTS_API_KEY."""

    def resolve(name: str) -> str:
        variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
        value = variables.get(name, variables.get(variable))
        if value is None:
            raise SecretUnavailableError(
                f"the secret {name!r} is not set. Nothing was sent with it. "
                f"Set the environment variable {variable}, or configure another resolver."
            )
        return value

    return resolve


# How names become values, set around each call of a tool: recovery calls it with nothing but the name.
RESOLVER: Final[ContextVar[Callable[[str], str] | None]] = ContextVar("beforehand_secrets", default=None)

# Receives each value that is revealed, so that it can be masked in what goes on record.
REVEALED: Final[ContextVar[Callable[[str], None] | None]] = ContextVar("beforehand_revealed", default=None)


@final
class Secret:
    """A reference to a secret, resolved each time it is revealed.

    `Secret("payments-api-key")` is resolved by name again after a restart. `Secret.of(value, name=...)` holds a value
    in memory only, so recovery alone cannot execute an operation with such an argument. Two secrets are equal if they
    are the same reference, whatever their values.
    """

    __slots__ = ("_held", "name")

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            # The text is not repeated: a caller who mixes the two up has passed the value itself.
            raise ValueError("a secret is named by letters, digits and . _ / : - only; pass its name, not its value")
        self.name: Final = name
        self._held: str | None = None

    @classmethod
    def of(cls, value: str, *, name: str) -> Self:
        """A secret whose value is only in the memory of this process."""
        secret = cls(name)
        secret._held = value
        return secret

    @property
    def resolvable(self) -> bool:
        """True if the value can be found again from the name alone."""
        return self._held is None

    def reveal(self) -> str:
        """The value itself. Raises `SecretUnavailableError` if it cannot be found."""
        value = self._held if self._held is not None else self._resolved()
        if (revealed := REVEALED.get()) is not None:
            revealed(value)
        return value

    def _resolved(self) -> str:
        if (resolve := RESOLVER.get()) is None:
            raise SecretUnavailableError(
                f"the secret {self.name!r} is revealed where no resolver is set. Nothing was sent with it. "
                "Reveal it inside a tool that beforehand calls, or use Secret.of in a test."
            )
        return resolve(self.name)

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self.name, self.resolvable) == (other.name, other.resolvable)

    def __hash__(self) -> int:
        return hash((self.name, self.resolvable))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        if self._held is not None:
            raise TypeError(f"{self!r} holds its value in memory and is never pickled; use a name that resolves")
        return Secret, (self.name,)
