"""The canonical form of a call's arguments (`c14n:1`), its digest, and the form that is stored.

The form is JSON after RFC 8785 with tags for the types that JSON lacks (canonical_forms.py). Equal values have
equal forms and different values have different ones, so a digest over the form decides whether an operation that
comes back is the same operation. What cannot be recorded faithfully is refused here, before anything is recorded.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
import rfc8785

from beforehand.model.canonical.decode import restore
from beforehand.model.canonical.forms import REDACTED, SAFE_INTEGER, Limits, Plain, Walk, argument_error
from beforehand.model.errors import ArgumentError
from beforehand.model.secret import Secret

__all__ = ["DEFAULT_LIMITS", "VERSION", "ArgumentError", "Forms", "Limits", "canonical", "digest",
           "forms", "restore"]  # fmt: skip

VERSION: Final = "c14n:1"
DEFAULT_LIMITS: Final = Limits()

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_SCALARS: Final = frozenset({str, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list})


class Forms(msgspec.Struct, frozen=True, gc=False):
    """Both forms of one call's arguments."""

    identity: bytes
    """The canonical form: what `digest` is taken of."""
    stored: bytes
    """The form that the journal keeps: exact, without secrets and redacted values."""
    executable: bool
    """True if a tool can be called again from the stored form alone."""


def canonical(arguments: Mapping[str, object], *, limit: Limits = DEFAULT_LIMITS) -> bytes:
    """The canonical form of `arguments`; raises ArgumentError, naming the parameter, where there is none."""
    fast = _fast(arguments, limit)
    return _identity(arguments, limit) if fast is None else fast


def forms(
    arguments: Mapping[str, object], redact: frozenset[str] = frozenset(), *, limit: Limits = DEFAULT_LIMITS
) -> Forms:
    """The identity form and the stored form in one go; plain arguments are written only once.

    A secret is stored as its name; a parameter in `redact` is left out, and then the tool cannot be called from
    the record alone. Raises ArgumentError as `canonical` does.
    """
    fast = _fast(arguments, limit)
    identity = _identity(arguments, limit) if fast is None else fast
    if fast is not None and (not redact or redact.isdisjoint(arguments)):
        return Forms(fast, fast, True)
    kept: dict[str, object] = {
        # The name of a secret may be seen, and keeps the operation executable.
        name: REDACTED if name in redact and not isinstance(value, Secret) else value
        for name, value in arguments.items()
    }
    walk = Walk(limit, exact=True)
    return Forms(identity, _encode(walk.arguments(kept)), walk.executable)


def digest(secret: bytes, canonical: bytes) -> str:
    """The keyed digest of a canonical form: HMAC-SHA-256 cut to 16 bytes, base64url, 22 characters.

    Keyed with the journal's `secret`, because amounts and names are few enough to be guessed from a bare hash.
    """
    inner, outer = _keyed(secret)
    first, second = inner(), outer()
    first.update(canonical)
    second.update(first.digest())
    text = binascii.b2a_base64(second.digest()[:16], newline=False)
    return text.translate(_URL_SAFE)[:22].decode()


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


@lru_cache(maxsize=16)
def _keyed(secret: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Makers of the two hashes of HMAC (RFC 2104) with the key taken in: half the price of hmac.digest."""
    key = (secret if len(secret) <= 64 else hashlib.sha256(secret).digest()).ljust(64, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in key)) for pad in (0x36, 0x5C))
    return inner.copy, outer.copy


def _identity(arguments: Mapping[str, object], limit: Limits) -> bytes:
    walk = Walk(limit, exact=False)
    plain = walk.arguments(arguments)
    data = _write(plain, special=walk.special)
    if len(data) > limit.size:
        content = cast("dict[str, Plain]", plain)
        largest = max(content, key=lambda name: len(_write(content[name], special=True)))
        raise argument_error(
            largest, f"the arguments are larger than {limit.size} bytes", "Store it, and pass its address."
        )
    return data


def _write(plain: Plain, *, special: bool) -> bytes:
    return rfc8785.dumps(cast("Any", plain)) if special else _encode(plain)


# --- the fast path: one encoder's output, where it is known to equal the canonical form ---------------------------


def _fast(arguments: Mapping[str, object], limit: Limits) -> bytes | None:
    """The canonical form of plain arguments, or None where only the walk knows the form or names the fault."""
    if not _is_plain(arguments, limit.depth) or type(arguments) is not dict:
        return None
    try:
        data = _encode(arguments)
    except UnicodeEncodeError:
        return None
    # `in` would first take what it looks for as a number, and fail: on bytes, `find` is several times faster.
    if len(data) > limit.size or data.find(b'{"$') >= 0 or data.find(b"\\u0000") >= 0:
        return None
    if data.isascii() or _has_ascii_keys(arguments):
        return data
    return None


def _is_plain(value: Mapping[str, Any] | list[Any], levels: int) -> bool:
    """True if everything below `value` is text, safe integers, booleans, None, and lists and dicts of these."""
    if isinstance(value, list):
        items: Collection[Any] = value
    else:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    for item in items:
        if type(item) is int:
            if not -SAFE_INTEGER <= item <= SAFE_INTEGER:
                return False
        elif type(item) in _CONTAINERS:
            if levels == 0 or not _is_plain(item, levels - 1):
                return False
        elif type(item) not in _SCALARS:
            return False
    return True


def _has_ascii_keys(value: Any) -> bool:
    """Beyond ASCII, RFC 8785 orders keys by UTF-16 and the encoder by UTF-8."""
    if isinstance(value, dict):
        content = cast("dict[str, Any]", value)
        return "".join(content).isascii() and all(map(_has_ascii_keys, content.values()))
    if isinstance(value, list):
        return all(map(_has_ascii_keys, cast("list[object]", value)))
    return True
