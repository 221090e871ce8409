"""A directory of its own for each test, with the desk in it; loaded modules are forgotten afterwards."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.lab import DESK, Lab


@pytest.fixture
def beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.chdir(tmp_path)
    for name in ("BEFOREHAND_JOURNAL", "DIE_AFTER", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("desk", None)  # of another test's directory: a module that is asked for by name would be that one
    loaded = set(sys.modules)
    (tmp_path / "desk.py").write_text(DESK)
    yield Lab(tmp_path, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    for name in set(sys.modules) - loaded:
        module = sys.modules[name]
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def asking(beforehand: Lab) -> Lab:
    """The desk after a run that waits for a person: it is not known whether the shelf was stocked."""
    assert beforehand("run", "desk.py:desk", beforehand.ticket("1", mode="lost")).status == 3
    return beforehand
