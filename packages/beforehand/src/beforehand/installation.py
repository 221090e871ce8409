"""How this distribution was installed, and how to install a part of it that is missing.

Our distributions are in no package index: an installer that is told one of their names alone would ask an index for it,
and install whatever a stranger publishes under that name. So nothing here or in a message names them without a place.
What others publish is named as our own metadata requires it. Read when something is missing, and by `init`.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from beforehand.model.errors import UsageError

OURS: Final = "beforehand"
CONSOLE: Final = "beforehand-console"
"""The distribution with the web inbox, accounts, notifications and reviewer figures."""


class _Repository(msgspec.Struct, frozen=True):
    vcs: str
    commit_id: str


class _Origin(msgspec.Struct, frozen=True):
    """The file `direct_url.json`, which installers write for a distribution that they were given by its place."""

    url: str
    subdirectory: str = ""
    vcs_info: _Repository | None = None


def extra_command(extra: str, distribution: str = OURS) -> str:
    """The command that installs what this extra requires."""
    from importlib.metadata import requires  # noqa: PLC0415 - slow to import, and seldom needed

    stated = (line.partition("; ") for line in requires(distribution) or ())
    wanted = [requirement for requirement, _, marker in stated if marker == f"extra == '{extra}'"]
    return f"pip install {shlex.join(wanted)}"


@contextmanager
def needing(lack: str, extra: str) -> Generator[None]:
    """Raise `UsageError` that says what lacks a library, and how to install it, in place of the error of an import."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{lack}, which is not installed", next_step=extra_command(extra)) from error


def console_command() -> str:
    """The command that installs the console: from beside the directory that the runtime was installed from."""
    origin = _origin()
    if origin is not None and origin.url.startswith("file:"):
        beside = Path(unquote(urlsplit(origin.url).path)).with_name(CONSOLE)
        if (beside / "pyproject.toml").is_file():
            return f"pip install {shlex.quote(str(beside))}"
    return f"pip install ./packages/{CONSOLE}, in the source of Beforehand {_version()}"


def requirement(extras: str) -> str:
    """The requirement that installs the runtime elsewhere, from the place where this one came from."""
    origin = _origin()
    if origin is None:  # an installer found it by its name, and will again
        return f"{OURS}[{extras}]=={_version()}"
    address, repository = origin.url, origin.vcs_info
    if repository is not None:
        address = f"{repository.vcs}+{address}@{repository.commit_id}"
    if origin.subdirectory:
        address += f"#subdirectory={origin.subdirectory}"
    return f"{OURS}[{extras}] @ {address}"


def _origin() -> _Origin | None:
    from importlib.metadata import distribution  # noqa: PLC0415 - as above

    stated = distribution(OURS).read_text("direct_url.json")
    return None if stated is None else msgspec.json.decode(stated, type=_Origin)


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - as above

    return version(OURS)
