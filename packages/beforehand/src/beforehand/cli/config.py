"""The journal that a command means, and how a printed command names it where it is printed.

It is the one named by `--journal`, else by `BEFOREHAND_JOURNAL`, else by pyproject.toml, else `./beforehand.db`, else
the only journal in this directory.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

from beforehand import former_name
from beforehand.errors import UsageError
from beforehand.extensions import INSTALLED
from beforehand.inspect.text import count, split_report
from beforehand.journal.backends import Address, address_of, addresses_in

DEFAULT: Final = "beforehand.db"
TRUSTED: Final = "BEFOREHAND_TRUSTED_PROJECTS"
"""Directories, separated as in PATH, whose pyproject.toml is read whichever user owns it."""
_COMMAND: Final = re.compile(r"^[^'\n]*?\bbeforehand (?=[a-z])(?!demo\b|completion\b|tools\b)", re.MULTILINE)
"""A command is the first on its line, and before any quoted word: inside one the name is text of others."""


def journal_address(option: str | None) -> Address:
    """The address of the journal. Raises `UsageError` for one that no command can reach."""
    address = _named(option)
    if not address.lasting:
        raise UsageError(
            f"the journal {address} ends with the process that opens it, so no other command would find it",
            next_step="name a file: --journal desk.db",
        )
    return address


def _named(option: str | None) -> Address:
    if named := option or os.environ.get("BEFOREHAND_JOURNAL"):
        return address_of(named)
    directory, settings = project_settings(Path.cwd())
    if "journal" in settings:
        return address_of(_text(settings["journal"], "journal", directory)).below(directory)
    default = address_of(DEFAULT)
    found = [] if default.exists() else journals_here()
    return found[0] if len(found) == 1 else default


def journals_here() -> list[Address]:
    """The journals in the current directory, by name."""
    return addresses_in(Path())


def journal_option(address: Address) -> str:
    """The option by which a command typed in this directory finds the journal; empty where none is needed or helps."""
    if not address.lasting:
        return ""
    try:
        if journal_address(None).leads_to(address):
            return ""
    except UsageError:
        pass  # the project's settings cannot be read: name the journal
    return named_by(str(address))


def named_by(address: str) -> str:
    """The option that names a journal."""
    return f"--journal {shlex.quote(address)} "


def located(text: str, option: str) -> str:
    """`text` with `option` added to the command on each of its lines, so that it works where it is printed."""
    return _COMMAND.sub(lambda found: found[0] + option, text) if option else text


def located_report(text: str, option: str) -> str:
    """A recorded reason of a run, with `option` in the commands that the runtime wrote behind it; the rest is kept."""
    facts, commands = split_report(text)
    return facts + located(commands, option)


def shown_path(path: Path) -> str:
    """A path as short as it can be written from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def policy_source(option: str | None) -> str | None:
    """The source of the escalation policy, a file or `installed:NAME`; None if there is none.

    It is the one that is named, else that of `BEFOREHAND_POLICY`, else that of pyproject.toml.
    """
    if named := option or os.environ.get("BEFOREHAND_POLICY"):
        return named if named.startswith(INSTALLED) else str(Path(named).expanduser())
    directory, settings = project_settings(Path.cwd())
    if "policy" not in settings:
        return None
    named = _text(settings["policy"], "policy", directory)
    return named if named.startswith(INSTALLED) else str(directory / named)


def existing_journal(option: str | None) -> Address:
    """The address of a journal that is there. Reading never creates one. Raises `UsageError`."""
    address = journal_address(option)
    if not address.exists():
        others = ", ".join(map(str, journals_here()))
        raise UsageError(
            f"the journal {address.place} "
            + ("is an empty file" if Path(address.place).is_file() else "does not exist"),
            known=f"journals in this directory: {others}" if others else "a command that reads never creates one",
            next_step="name it with --journal PATH, BEFOREHAND_JOURNAL or [tool.beforehand] journal in pyproject.toml"
            + ("" if others else "; `beforehand run` creates it"),
        )
    return address


def project_targets() -> list[str]:
    """`[tool.beforehand] agents` of the nearest pyproject.toml: targets for `worker`, `resume` and `replay`.

    A path in one of them is relative to the directory of that file.
    """
    directory, settings = project_settings(Path.cwd())
    named: object = settings.get("agents", [])
    if not isinstance(named, list):
        raise UsageError(
            f"{directory / 'pyproject.toml'}: [tool.beforehand] agents is not a list",
            next_step='write agents = ["desk.py:refund_desk"]',
        )
    return [_beside(directory, _text(one, "agents", directory)) for one in cast("list[object]", named)]


def project_file(name: Literal["reach", "queues", "prices"]) -> Path | None:
    """The file that `[tool.beforehand]` of the nearest pyproject.toml names.

    `reach`: who is notified when a person is asked. `queues`: the limits of queues. `prices`: the prices of models.
    """
    directory, settings = project_settings(Path.cwd())
    return directory / _text(settings[name], name, directory) if name in settings else None


def undeclared(what: Literal["limit", "schedule"], known: Mapping[str, object]) -> list[str]:
    """A remark on what the project's file declares and no process has brought into the journal yet.

    `known` are the limits or the schedules of the journal, by name.
    """
    if (file := project_file("queues")) is None:
        return []
    from beforehand.control.queues import declarations_of  # noqa: PLC0415 - most projects declare none

    try:
        found = declarations_of(file)
    except UsageError as faults:
        return [str(faults)]
    limits = found.limits.by_name() if found.limits is not None else {}
    ours: Mapping[str, object] = limits if what == "limit" else found.schedules or {}
    number = sum(known.get(name) != one for name, one in ours.items())
    declared = f"{count(number, what)} declared in {shown_path(file)}, not yet in the journal"
    return [f"{declared}: start a worker. Next: beforehand worker"] if number else []


def project_monitors() -> tuple[str, dict[str, Any]]:
    """`[tool.beforehand.monitors]` of the nearest pyproject.toml, the monitors' bounds, and its name in errors."""
    directory, settings = project_settings(Path.cwd())
    where, table = f"{directory / 'pyproject.toml'}: [tool.beforehand.monitors]", settings.get("monitors", {})
    if not isinstance(table, dict):
        raise UsageError(f"{where} is {table!r}, which is not a table")
    return where, cast("dict[str, Any]", table)


def project_settings(start: Path) -> tuple[Path, dict[str, Any]]:
    """The `[tool.beforehand]` table of the nearest pyproject.toml that has one, and its directory."""
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        if not file.is_file():
            continue
        import tomllib  # noqa: PLC0415 - only where there is a file to read

        try:
            tool: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} cannot be read: {error}", next_step="correct it, or name --journal") from error
        settings = dict(tool.get("beforehand", {}))
        if former_name.SECTION in tool:
            _tell_once(former_name.of_section(file))
        if settings:
            _check_owner(file)
        return directory, settings
    return start, {}


@functools.cache
def _tell_once(remark: str) -> None:
    print(remark, file=sys.stderr, flush=True)  # noqa: T201 - the settings are read before a command has its screen


def _check_owner(file: Path) -> None:
    """Refuse settings of another user: they name code that would run with the rights of the caller.

    The file, a link by which it is found, and their directory have to belong to the caller or to root, and the file
    must not be writable by everybody. The files that it names are found through it, so they need no check of their own.
    Raises `UsageError`.
    """
    directory = file.parent
    named = os.environ.get(TRUSTED, "").split(os.pathsep)
    if any(one and Path(one).expanduser().absolute() == directory.absolute() for one in named):
        return
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))  # the person behind sudo, whose directory it is
    for place, found in ((file, file.lstat()), (file, file.stat()), (directory, directory.stat())):
        if found.st_uid not in trusted:
            raise _untrusted(directory, f"{place} belongs to {_user(found.st_uid)}, and you are {_user(os.geteuid())}")
    if file.stat().st_mode & stat.S_IWOTH:
        raise _untrusted(directory, f"{file} can be written by every user")


def _untrusted(directory: Path, why: str) -> UsageError:
    return UsageError(
        why,
        known="its [tool.beforehand] names code that would run as you; nothing was loaded",
        next_step=f"if you trust it: export {TRUSTED}={shlex.quote(str(directory))}; else work in another directory",
    )


def _user(number: int) -> str:
    import pwd  # noqa: PLC0415 - only for an error

    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def _text(value: object, name: str, directory: Path) -> str:
    if not isinstance(value, str):
        raise UsageError(
            f"{directory / 'pyproject.toml'}: [tool.beforehand] {name} is {value!r}, which is not a string"
        )
    return value


def _beside(directory: Path, target: str) -> str:
    place, colon, name = target.rpartition(":")
    return f"{directory / place}{colon}{name}" if place.endswith(".py") else target
