"""Locations of agents' code: each app that opens the journal notes them, so that `resume` and `replay` find the code.

A program that begins its runs at the top level can be loaded as well: loading it ends where it opens its app.
"""

from __future__ import annotations

import logging
import re
import symtable
import sys
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from beforehand.errors import JournalError
from beforehand.journal.cells import read_hint
from beforehand.journal.port import HintRequest, Journal, JournalReads
from beforehand.model.alike import nearest

if TYPE_CHECKING:
    from beforehand.agent.agent import Agent

LOG: Final = logging.getLogger("beforehand")
_HINT: Final = "target/"
_LOADING: Final[ContextVar[bool]] = ContextVar("beforehand-loading", default=False)
AnyAgent: TypeAlias = "Agent[Any, Any]"


_TRIES: Final = 5  # several programs may open one journal at the same moment
_PROGRAMS: Final = 50  # how many places are kept for one name
_BINDS_UNSEEN: Final = re.compile(r"import \*|\b(?:globals|vars|setattr|exec)\(")


class CodeLocation(msgspec.Struct, frozen=True):
    """`target` is what `--agent` takes, `directory` where modules are looked for, `program` whose agent it is."""

    target: str
    directory: str
    program: str

    @property
    def exists(self) -> bool:
        """True if the code is still there: a program that was moved away, or an agent renamed, leaves its note."""
        file = self.file
        return file.is_dir() or (file.exists() and _defines(file, self.target.rpartition(":")[2]))

    @property
    def file(self) -> Path:
        """The file of the code, or the directory of a module that has no source file there."""
        path, place = self.target.rpartition(":")[0], Path(self.directory)
        if path.endswith(".py"):
            return Path(path)
        module = place.joinpath(*path.split("."))
        return next((one for one in (module.with_suffix(".py"), module / "__init__.py") if one.exists()), place)


def _defines(file: Path, name: str) -> bool:
    """False if no statement of the module binds this name. The code is not run; in doubt the name is there."""
    try:
        text = file.read_text()
        module = symtable.symtable(text, str(file), "exec")
    except (OSError, SyntaxError, ValueError):
        return True
    if name in module.get_identifiers():
        return module.lookup(name).is_assigned() or module.lookup(name).is_imported()
    return _BINDS_UNSEEN.search(text) is not None


class AppOpened(BaseException):
    """Raised where a program that is only loaded opens its app. No `except Exception` of the program stops it."""


@contextmanager
def loading() -> Generator[None]:
    """Load a program for its definitions: it ends, without an error, where it would open its app and begin runs."""
    before = _LOADING.set(True)
    try:
        yield
    except AppOpened:
        pass
    finally:
        _LOADING.reset(before)


def stop_if_loading() -> None:
    """Raise `AppOpened` inside `loading`."""
    if _LOADING.get():
        raise AppOpened


async def note_code(journal: Journal, agents: Iterable[AnyAgent]) -> None:
    """Record the location of each agent's code, where it has changed. The note may be lost: it is only a hint."""
    try:
        for agent in agents:
            if (found := code_of(agent)) is not None:
                await _note(journal, _HINT + agent.name, found)
    except JournalError as error:  # a full disk, for example: an app that can be opened is opened without the note
        LOG.debug("where the code of the agents is could not be noted: %s", error)


async def unknown_agents(journal: JournalReads, named: Mapping[str, str], here: Collection[str] = ()) -> list[str]:
    """One remark for each agent that is not `here`, that no app over this journal has had, and that has no runs.

    `named` has the agents by the beginnings of the remarks.
    """
    strange = {
        text: agent
        for text, agent in named.items()
        if agent not in here and await read_hint(journal, _HINT + agent) is None
    }
    if not strange:
        return []
    known = {*here, *(agent for agent, _ in await journal.counts())}
    return [
        f"{text}: this journal was never opened with an agent {agent}"
        + (f"; did you mean {near}?" if (near := nearest(agent, known)) else "")
        for text, agent in strange.items()
        if agent not in known
    ]


async def _note(journal: Journal, name: str, found: CodeLocation) -> None:
    """Put the place of one program before those of others whose agent has the same name."""
    for _ in range(_TRIES):
        before = await read_hint(journal, name)
        others = [one for one in _decoded(before) if one.program != found.program]
        if found in _decoded(before) or await journal.commit(
            HintRequest(name, msgspec.json.encode([found, *others][:_PROGRAMS]), before)
        ):
            return


async def noted_code(journal: JournalReads, agent: str, program: str) -> CodeLocation | None:
    """The last known location of this agent of this program; None: it is not known."""
    return next((one for one in await noted_programs(journal, agent) if one.program == program), None)


async def noted_programs(journal: JournalReads, agent: str) -> Sequence[CodeLocation]:
    """The last known locations of agents of that name, one for each program."""
    return _decoded(await read_hint(journal, _HINT + agent))


def _decoded(stored: bytes | None) -> list[CodeLocation]:
    """The places in a note; one that cannot be read is lost."""
    try:
        return [] if stored is None else msgspec.json.decode(stored, type=list[CodeLocation])
    except msgspec.DecodeError:
        return []


def code_of(agent: AnyAgent) -> CodeLocation | None:
    """The location that this agent can be loaded from; None for one inside a function, or typed at a prompt."""
    module = sys.modules.get(agent.__wrapped__.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    name = next((name for name, value in vars(module).items() if value is agent), "")
    if not name:
        return None
    path = Path(file).resolve()
    imported = module.__spec__.name if module.__spec__ is not None else ""
    place = Path(*imported.split(".")) if "." in imported else Path()
    if place.parts and path.with_suffix("").parts[-len(place.parts) :] == place.parts:
        return CodeLocation(f"{imported}:{name}", str(path.parents[len(place.parts) - 1]), agent.program)
    return CodeLocation(f"{path}:{name}", str(path.parent), agent.program)
