"""Where the code of an agent is: noted in the journal by each app that opens it, so that `resume` and `replay` find it.

A program that begins its runs at the top level can be loaded as well: loading it ends where it opens its app.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.agent.agent import Agent
from holdfast.journal.port import Journal

_HINT: Final = "target/"
_LOADING: Final[ContextVar[bool]] = ContextVar("holdfast-loading", default=False)
AnyAgent = Agent[Any, Any]


class CodeLocation(msgspec.Struct, frozen=True):
    """`target` is what `--agent` takes, `directory` where modules are looked for."""

    target: str
    directory: str


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
    """Record where the code of each agent is, where that has changed. The note may be lost: it is only a hint."""
    for agent in agents:
        found = code_of(agent)
        if found is None:
            continue
        name, body = _HINT + agent.name, msgspec.json.encode(found)
        before = await journal.hint(name)
        if before != body:
            await journal.put_hint(name, body, before)


async def noted_code(journal: Journal, agent: str) -> CodeLocation | None:
    """Where the code of the agent of that name was found the last time; None: it is not known."""
    stored = await journal.hint(_HINT + agent)
    return None if stored is None else msgspec.json.decode(stored, type=CodeLocation)


def code_of(agent: AnyAgent) -> CodeLocation | None:
    """Where this agent can be loaded from; None for one inside a function, or typed at a prompt."""
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
        return CodeLocation(f"{imported}:{name}", str(path.parents[len(place.parts) - 1]))
    return CodeLocation(f"{path}:{name}", str(path.parent))
