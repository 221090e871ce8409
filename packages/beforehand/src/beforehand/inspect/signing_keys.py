"""Keys that sign links and journal heads, and the file beside the journal that keeps them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from beforehand.errors import UsageError
from beforehand.journal.host import sync

_KEPT: Final = 2  # a rotation keeps the previous key


class SigningKeys(msgspec.Struct, frozen=True):
    """Secret keys, the newest first. The newest signs; a signature by any of them is accepted."""

    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"SigningKeys({len(self.keys)} keys)"

    def rotated(self, fresh: str) -> SigningKeys:
        """The same with a new key first. What the previous key signed stays valid; what older keys signed does not."""
        return SigningKeys((fresh, *self.keys)[:_KEPT])


def load_keys(path: Path) -> SigningKeys | None:
    """The keys, or None where there are none yet. Raises `UsageError` for a file that holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SigningKeys)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path.name} holds no signing keys", next_step="restore it, or remove it: new keys are then made"
        ) from error


def keep_keys(path: Path, keys: SigningKeys) -> None:
    """Replace the file atomically, readable by its owner alone."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(keys))
        file.flush()
        sync(file.fileno())
    fresh.replace(path)


def first_keys(path: Path, fresh: str) -> SigningKeys:
    """The keys that lie there; where there are none, `fresh` is the first. Two processes agree on one."""
    if (found := load_keys(path)) is not None:
        return found
    own = path.with_name(f"{path.name}.{os.getpid()}")
    keep_keys(own, SigningKeys((fresh,)))
    try:
        os.link(own, path)  # fails where another process was faster, so no key is replaced
    except FileExistsError:
        return load_keys(path) or SigningKeys((fresh,))
    finally:
        own.unlink(missing_ok=True)
    return SigningKeys((fresh,))
