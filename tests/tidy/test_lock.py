"""The locks of environments: whole, hashed, current, and without an address."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LOCKED = [name for name, environment in script("environment").ENVIRONMENTS.items() if environment.lock]


def text_of(name: str) -> str:
    return (ROOT / "scripts" / f"{name}.lock").read_text(encoding="utf-8")


def locked(name: str) -> list[tuple[str, str, int]]:
    """Name, version and number of hashes of each entry."""
    entries = re.split(r"\n(?=\S)", text_of(name).strip())
    found = [(re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", entry), entry) for entry in entries]
    assert all(match for match, _ in found), [entry for match, entry in found if not match]
    return [(canonicalize_name(match[1]), match[2], entry.count("--hash=sha256:")) for match, entry in found if match]


@pytest.mark.parametrize("name", LOCKED)
def test_every_requirement_is_locked_at_a_version_that_it_allows(name: str):
    environment = script("environment")
    wanted = [Requirement(text) for text in environment.locked_requirements(environment.ENVIRONMENTS[name])]
    versions: dict[str, list[str]] = {}
    for package, version, _ in locked(name):
        versions.setdefault(package, []).append(version)
    missing = [
        str(requirement)
        for requirement in wanted
        if not any(requirement.specifier.contains(one) for one in versions.get(canonicalize_name(requirement.name), []))
    ]
    assert not missing, f"make lock: {missing}"


@pytest.mark.parametrize("name", LOCKED)
def test_every_entry_has_hashes_and_none_an_address(name: str):
    assert [package for package, _, hashes in locked(name) if not hashes] == []
    assert "://" not in text_of(name)
    assert not re.search(r"^\s*-(?!-hash)", text_of(name), flags=re.MULTILINE), "no options"


def test_every_lock_is_of_an_environment():
    assert {path.stem for path in (ROOT / "scripts").glob("*.lock")} == set(LOCKED)


def test_an_audit_without_a_database_is_skipped_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    audit = script("audit")
    monkeypatch.setattr(audit, "DATABASE", "http://127.0.0.1:9/")
    assert audit.main() == 0
    assert "dependency audit skipped" in capsys.readouterr().out


def test_a_bill_of_materials_names_no_place_on_this_machine():
    listed = {
        "specVersion": "1.6",
        "components": [
            {"name": "beforehand", "externalReferences": [{"type": "distribution", "url": ROOT.as_uri()}]},
            {"name": "msgspec", "externalReferences": [{"type": "website", "url": "https://example.com/"}]},
        ],
    }
    kept = script("sbom").without_places(listed)
    assert [one["externalReferences"] for one in kept["components"]] == [
        [],
        [{"type": "website", "url": "https://example.com/"}],
    ]
    assert str(ROOT) not in json.dumps(kept)


def test_the_bill_of_a_distribution_lists_what_it_requires_and_nothing_else():
    names = ("beforehand", "msgspec", "click", "pytest")
    listed = {
        "metadata": {"component": {"bom-ref": "console"}},
        "components": [{"name": name, "bom-ref": name} for name in names],
        "dependencies": [
            {"ref": "console", "dependsOn": ["beforehand"]},
            {"ref": "beforehand", "dependsOn": ["msgspec", "click"]},
            {"ref": "pytest", "dependsOn": ["click"]},
            {"ref": "click"},
        ],
    }
    kept = script("sbom").required(listed)
    assert [one["name"] for one in kept["components"]] == ["beforehand", "msgspec", "click"]
    assert [one["ref"] for one in kept["dependencies"]] == ["console", "beforehand", "click"]


def test_every_distribution_has_its_bill_of_materials():
    assert set(script("sbom").DISTRIBUTIONS) == {path.name for path in (ROOT / "packages").iterdir()}


def test_a_lock_that_does_not_fit_is_named_before_the_ranges_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    environment = script("environment")
    tried: list[tuple[str, ...]] = []

    def install(*arguments: str) -> bool:
        tried.append(arguments)
        return "--require-hashes" not in arguments

    monkeypatch.delenv("LOCKED", raising=False)
    assert environment.install_with(install, environment.ENVIRONMENTS["dev"])
    assert "--require-hashes" in tried[0]
    assert "--require-hashes" not in tried[-1]
    assert "the lock cannot be used here" in capsys.readouterr().err
    monkeypatch.setenv("LOCKED", "1")
    assert not environment.install_with(install, environment.ENVIRONMENTS["dev"])
