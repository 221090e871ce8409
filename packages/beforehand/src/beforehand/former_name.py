"""The remains of the former name, Holdfast: none of them is read, and the command line names those that are found.

Keys, digests and the ids of a journal contain the name, so no journal of Holdfast can continue here: what it has sent
under one key would be sent again under another. It is refused when it is opened, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from beforehand.model.errors import JournalError

APPLICATION_ID: Final = 0x484F4C44  # "HOLD"
SECTION: Final = "holdfast"
"""The table under `[tool]` in pyproject.toml."""
_PREFIX: Final = "HOLDFAST_"


def check_journal(application_id: int, path: Path) -> None:
    """Raise `JournalError` where the application id of an SQLite file is that of Holdfast."""
    if application_id == APPLICATION_ID:
        raise JournalError(
            f"{path} was written by Holdfast, the former name of Beforehand",
            known="the file was not changed; nothing converts it, since its idempotency keys contain the name",
            next_step="read it with the Holdfast that wrote it; for new runs name another file",
        )


def of_variables(names: Iterable[str]) -> list[str]:
    """A remark for each variable of an environment that is not read any more."""
    former = sorted(name for name in names if name.startswith(_PREFIX))
    return [f"{name} is not read any more; set BEFOREHAND_{name.removeprefix(_PREFIX)}" for name in former]


def of_section(file: Path) -> str:
    """The remark about a pyproject.toml with a section of the former name."""
    return f"[tool.{SECTION}] in {file} is not read any more; write [tool.beforehand]"
