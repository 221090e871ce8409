"""A host that is missing, too old or too new is refused when its module is imported, with the command that helps."""

import ast
import importlib
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import beforehand.hosts
from beforehand.errors import UsageError
from beforehand.installation import extra_command

ROOT = Path(__file__).parents[2]
ADAPTERS = ("pydantic_ai", "langchain", "openai_agents", "google_adk", "crewai", "starlette")


def bounds(module: str) -> list[str]:
    """The distribution, the bounds and the extra that a module names."""
    source = ROOT / "packages" / "beforehand" / "src" / "beforehand" / "hosts" / f"{module}.py"
    (call,) = (
        node.items[0].context_expr
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.With) and "supported(" in ast.unparse(node.items[0])
    )
    assert isinstance(call, ast.Call)
    return [ast.literal_eval(one) for one in call.args]


@pytest.mark.parametrize("module", ADAPTERS)
def test_the_bounds_of_a_module_are_those_of_its_extra(module: str):
    distribution, lowest, below, extra = bounds(module)
    project = tomllib.loads((ROOT / "packages" / "beforehand" / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][extra][0] == f"{distribution}>={lowest},<{below}"


def test_the_lowest_versions_that_are_tested_are_the_bounds_of_the_extras():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    project = tomllib.loads((ROOT / "packages" / "beforehand" / "pyproject.toml").read_text())["project"]
    groups = [name for name in stated if name.startswith("lowest-")]
    assert groups
    for name in groups:
        bounded = [one.split(",")[0] for one in project["optional-dependencies"][name.removeprefix("lowest-")]]
        assert [one.replace("==", ">=") for one in stated[name]] == bounded


@pytest.mark.parametrize("module", ADAPTERS)
@pytest.mark.parametrize("installed", ["", "0.0.9", "99.0.0", "99.0.0rc1"])
def test_a_version_that_is_not_supported_is_refused_when_it_is_imported(
    module: str, installed: str, monkeypatch: pytest.MonkeyPatch
):
    distribution, _, _, extra = bounds(module)

    def version(name: str) -> str:
        assert name == distribution
        if not installed:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(beforehand.hosts, "version", version)
    monkeypatch.delitem(sys.modules, f"beforehand.hosts.{module}", raising=False)
    with pytest.raises(UsageError, match=f"needs {distribution} from") as refused:
        importlib.import_module(f"beforehand.hosts.{module}")
    assert refused.value.known == f"{distribution} {installed or 'is not'} {'is ' if installed else ''}installed"
    assert refused.value.next_step == extra_command(extra)
    assert distribution in extra_command(extra)


@pytest.mark.parametrize("installed", ["1.2.18", "1.2.18.post1", "1.10", "1.99.3"])
def test_a_version_between_the_bounds_is_taken(installed: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(beforehand.hosts, "version", lambda _: installed)
    with beforehand.hosts.supported("langchain", "1.2.18", "2", "langchain"):
        pass
