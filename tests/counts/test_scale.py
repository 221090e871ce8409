"""The journal that `make scale` measures, at a small size: built by the product, whole, and with every kind of run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SIZE = ("--operations", "1003", "--runs", "100")


def ran(program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def beforehand(journal: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "beforehand", *arguments, "--journal", str(journal)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_small_one_is_whole(tmp_path: Path):
    built = ran(BENCH / "subjects" / "scaled.py", "build", *SIZE, "--directory", str(tmp_path))
    assert built.returncode == 0, built.stderr
    journal = tmp_path / "grown.db"
    beforehand(journal, "verify")
    runs = json.loads(beforehand(journal, "ps", "--limit", "200", "--json"))["runs"]
    kinds = [(run["agent"], run["status"]) for run in runs]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        ("order", "completed"): 80, ("waits", "suspended"): 10, ("deferred", "suspended"): 10,
    }  # fmt: skip
    ended = [run["run"] for run in runs if run["agent"] == "order"]
    stories = [json.loads(beforehand(journal, "show", run, "--json")) for run in (min(ended), max(ended))]
    writes = [sum(entry["kind"] == "write" for entry in story["entries"]) for story in stories]
    assert writes == [12, 13], "1,003 operations in 80 runs"


@pytest.mark.deep
def test_the_driver_reports_each_figure_and_fails_where_one_is_missed(tmp_path: Path):
    done = ran(BENCH / "scale.py", *SIZE, "--directory", str(tmp_path), "--sync-us", "0", "--only", "ps", "--json")
    (figure,) = json.loads(done.stdout)["figures"]
    assert figure["name"] == "ps"
    assert figure["figure"] > 0
    assert done.returncode == (0 if figure["met"] else 1), done.stderr
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


@pytest.mark.parametrize("size", ["10000000000000", None])
def test_a_place_without_room_is_refused_by_name(tmp_path: Path, size: str | None):
    place = tmp_path if size else tmp_path / "missing"
    done = ran(BENCH / "scale.py", "--operations", size or "1000", "--runs", "100", "--directory", str(place))
    assert done.returncode == 2
    assert str(place) in done.stderr
    assert "Next: name a" in done.stderr
