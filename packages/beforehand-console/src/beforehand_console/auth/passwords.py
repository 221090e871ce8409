"""Passwords: argon2id hashes, and one hash more for names without an account, so that both take the same time."""

from __future__ import annotations

import unicodedata
from typing import Final, Protocol

from beforehand.errors import UsageError

SHORTEST: Final = 12
"""Characters. Length makes guessing expensive; rules about signs only make people write it down."""
LONGEST: Final = 1024
"""Bytes: a stranger cannot make the server hash a book."""


class Hasher(Protocol):
    """Hashes and compares passwords; `argon2.PasswordHasher` by default."""

    def hash(self, password: str) -> str:
        """A salted hash with its parameters."""
        ...

    def verify(self, hash: str, password: str) -> bool:  # noqa: A002 - the library's own name
        """True, or an error of the library."""
        ...


def argon2id() -> Hasher:
    """The library with its defaults: RFC 9106's second recommendation, 64 MiB."""
    from argon2 import PasswordHasher  # noqa: PLC0415 - most commands hash nothing

    hasher: Hasher = PasswordHasher()
    return hasher


def checked_password(password: str, name: str) -> str:
    """The password as it is hashed. Raises `UsageError` for one that is easy to guess; the text never repeats it."""
    plain = normal(password)
    if len(plain) < SHORTEST or len(plain.encode(errors="replace")) > LONGEST:
        raise UsageError(
            f"a password has {SHORTEST} characters or more, and {LONGEST} bytes at most",
            next_step="choose one of such a length",
        )
    if len(set(plain)) < 5 or plain.casefold() in {name * times for times in range(1, LONGEST // len(name))}:
        raise UsageError("this password is too easy to guess", next_step="choose another one")
    if any("\ud800" <= sign <= "\udfff" for sign in plain):
        raise UsageError("this password is not text", next_step="choose another one")
    return plain


def normal(password: str) -> str:
    """One form for what keyboards spell in several ways (RFC 8265 asks for NFC)."""
    return unicodedata.normalize("NFC", password)


class Passwords:
    """Hashing and comparing, both slow on purpose: call them in a thread."""

    def __init__(self, hasher: Hasher | None = None) -> None:
        self._hasher = hasher or argon2id()
        self._decoy = self._hasher.hash(
            "no account has this password"
        )  # the salt is random: no password can be tried on it

    def hashed(self, password: str, name: str) -> str:
        """The hash to store. Raises `UsageError` for a password that is too weak."""
        return self._hasher.hash(checked_password(password, name))

    def fits(self, kept: str, password: str) -> bool:
        """True if it is the password. Without a stored hash, the same work is done: one comparison, always."""
        if len(password) > LONGEST:
            password = ""
        try:
            right = self._hasher.verify(kept or self._decoy, normal(password))
        except Exception:  # noqa: BLE001 - whatever the library says about it, it does not fit
            return False
        return right and bool(kept)
