"""`beforehand init`: write a project that runs: tools with contracts, an agent, a test with crashes, and settings."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import click

from beforehand.cli.common import CommandCall, command
from beforehand.cli.config import shown_path
from beforehand.cli.exit_status import DONE
from beforehand.errors import UsageError
from beforehand.installation import requirement


class Kind(NamedTuple):
    """A kind of project: its meaning, the extras of the runtime that it needs, and the command that develops it."""

    meaning: str
    extras: str
    develop: str = "beforehand dev"


HOSTS: Final = {
    "loop": Kind("the ready loop of Beforehand", "openai"),
    "pydantic-ai": Kind("Pydantic AI", "pydantic-ai"),
    "langchain": Kind("LangChain", "langchain"),
    "openai-agents": Kind("the OpenAI Agents SDK", "openai-agents"),
    "google-adk": Kind("Google ADK", "google-adk"),
    "crewai": Kind("CrewAI", "crewai"),
    "fastapi": Kind("the ready loop, served over HTTP by FastAPI", "fastapi,openai", "uvicorn desk:api --reload"),
}
"""The directories of `projects/`, one for each way to drive a model. Their files replace those of `shared`."""
_SHORT: Final = {"adk": "google-adk"}
_TEMPLATE: Final = ".txt"


class _HostChoice(click.Choice[str]):
    """The name of a host; the name by which people call it is accepted, too."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return super().normalize_choice(_SHORT.get(str(choice), str(choice)), ctx)


_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@command(
    "init", examples=("beforehand init refunds", "beforehand init refunds --host pydantic-ai", "beforehand init .")
)
@click.argument("directory", metavar="DIRECTORY")
@click.option(
    "--host",
    default="loop",
    show_default=True,
    type=_HostChoice([*HOSTS]),
    help="What asks the model: " + "; ".join(f"{name}: {kind.meaning}" for name, kind in HOSTS.items()) + ".",
)
def init(call: CommandCall, directory: str, host: str) -> int:
    """Write a new project into DIRECTORY: an agent with two tools, and a test.

    The project runs without a key, with a model that follows a script. No file is
    overwritten: where one exists, nothing is written.
    """
    place = Path(directory)
    name = place.resolve().name
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} cannot name a project", next_step="use letters, digits, and - _ . between them")
    kind = HOSTS[host]
    needed = requirement(kind.extras)
    projects = files("beforehand.cli").joinpath("projects")
    sources = (projects.joinpath("shared"), projects.joinpath(host))
    found = {one.name.removesuffix(_TEMPLATE): one.read_text("utf-8") for source in sources for one in source.iterdir()}
    found[".gitignore"] = found.pop("gitignore")
    texts = {
        place / path: text.replace("{{project}}", name).replace("{{requirement}}", needed)
        for path, text in sorted(found.items(), key=lambda one: (one[0] == ".gitignore", one[0]))
    }
    if there := [shown_path(path) for path in texts if path.exists()]:
        raise UsageError(f"{', '.join(there)} would be overwritten", next_step="name a new directory")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be written: {error.strerror}", next_step="name a directory of yours"
        ) from error
    if call.screen.wrote_json({"project": name, "host": host, "files": [str(path) for path in texts]}):
        return DONE
    where = "this directory" if place.resolve() == Path.cwd() else shown_path(place)
    call.screen.line(f"Wrote {', '.join(path.name for path in texts)} to {where}.")
    into = () if place.resolve() == Path.cwd() else (f"cd {shlex.quote(shown_path(place))}",)
    given = """'{"id": "17", "text": "My order A-17 came late."}'"""
    call.screen.commands(
        *into,
        f"pip install {shlex.quote(needed)} pytest",
        f"beforehand run desk.py:desk {given}",
        "beforehand show ticket-17",
        "pytest",
        kind.develop,
    )
    return DONE
