"""`make soak-live`, one short round: live runs, a kill, and a witness outside that counts their effects."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "bench" / "soak_live.py"


def soak(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(SOAK), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_short_round_kills_a_process_and_finds_every_effect(tmp_path: Path):
    shape = ("--minutes", "0.2", "--runs", "12", "--workers", "2", "--kill-every", "6")
    done = soak(*shape, "--directory", str(tmp_path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    assert figures["faults"] == []
    assert figures["kills"] >= 1
    assert figures["runs"]["completed"] > 0
    assert figures["effects"] >= 7 * figures["runs"]["completed"]
    assert figures["memory"]["flat"] is None, "seconds say nothing about memory"
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--workers", "1"), "--workers 1"),
        (("--runs", "2"), "--runs 2"),
        (("--minutes", "0.1"), "--minutes 0.1"),
        (("--directory", "/nowhere/at/all"), "--directory /nowhere/at/all"),
    ],
)
def test_a_soak_that_cannot_be_had_is_refused_by_name(arguments: tuple[str, ...], named: str):
    done = soak(*arguments)
    assert done.returncode == 2
    assert named in done.stderr


def test_memory_is_judged_by_the_line_through_its_samples():
    judged: Any = runpy.run_path(str(SOAK))["judged"]
    flat = [(second * 1.0, 50_000.0 + second % 7) for second in range(600)]
    grown = [(second * 1.0, 50_000.0 + 20 * second) for second in range(600)]
    assert judged(flat, 10)["flat"] is True
    assert judged(grown, 10)["flat"] is False
    assert judged(grown, 1)["flat"] is None
