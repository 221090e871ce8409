"""What an error says to install: requirements of our own metadata, and our distributions by their place alone."""

import tomllib
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from beforehand import installation
from beforehand.installation import CONSOLE, OURS, console_command, extra_command, requirement

PACKAGES = Path(__file__).parents[2] / "packages"
STATED = {
    name: tomllib.loads((PACKAGES / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in (OURS, CONSOLE)
}
EXTRAS = [(name, extra) for name, project in STATED.items() for extra in project["optional-dependencies"]]


class Installed:
    """Stands in for the metadata of this distribution, as an installer wrote it."""

    def __init__(self, origin: dict[str, object] | None, requires: tuple[str, ...] = ()) -> None:
        self._origin = origin
        self.requires = list(requires)
        self.version = "0.1.0"

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else msgspec.json.encode(self._origin).decode()


def installed(monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None, *requires: str) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin, requires))


@pytest.mark.parametrize(("distribution", "extra"), EXTRAS)
def test_an_extra_of_ours_is_installed_by_what_it_requires(
    distribution: str, extra: str, monkeypatch: pytest.MonkeyPatch
):
    wanted = STATED[distribution]["optional-dependencies"][extra]
    stated = [*STATED[distribution]["dependencies"], *(f"{one}; extra == '{extra}'" for one in wanted)]
    installed(monkeypatch, None, *stated, "other>=1; extra == 'another'")
    assert extra_command(extra, distribution) == f"pip install {' '.join(map(repr, wanted))}"


@pytest.mark.parametrize("extra", ["apsw", "crewai", "google-adk", "schedules", "webhooks"])
def test_the_metadata_that_is_installed_is_read(extra: str):
    named = {Requirement(one.strip("'")).name for one in extra_command(extra).removeprefix("pip install ").split()}
    assert {Requirement(one).name for one in STATED[OURS]["optional-dependencies"][extra]} <= named


def test_the_console_is_installed_from_beside_the_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    place = tmp_path / "a copy" / "packages"
    (place / CONSOLE).mkdir(parents=True)
    (place / CONSOLE / "pyproject.toml").touch()
    installed(monkeypatch, {"url": (place / OURS).as_uri(), "dir_info": {"editable": True}})
    assert console_command() == f"pip install '{place / CONSOLE}'"


@pytest.mark.parametrize("origin", [None, {"url": "https://host.example/a.whl"}, {"url": Path("/gone/a.whl").as_uri()}])
def test_elsewhere_the_console_is_named_by_its_directory_in_the_source(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object] | None
):
    installed(monkeypatch, origin)
    assert console_command() == "pip install ./packages/beforehand-console, in the source of Beforehand 0.1.0"


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ({"url": "https://host.example/a%20b.whl", "archive_info": {}}, "https://host.example/a%20b.whl"),
        (
            {
                "url": "https://host.example/source",
                "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "0a1b"},
                "subdirectory": "packages/runtime",
            },
            "git+https://host.example/source@0a1b#subdirectory=packages/runtime",
        ),
    ],
)
def test_a_project_requires_the_runtime_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, origin: dict[str, object], address: str
):
    installed(monkeypatch, origin)
    wanted = Requirement(requirement("openai"))
    assert (wanted.name, wanted.extras, wanted.url) == (OURS, {"openai"}, address)


def test_a_runtime_that_was_found_by_its_name_is_required_by_its_name(monkeypatch: pytest.MonkeyPatch):
    installed(monkeypatch, None)
    assert installation.requirement("fastapi,openai") == "beforehand[fastapi,openai]==0.1.0"
