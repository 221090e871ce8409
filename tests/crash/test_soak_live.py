"""The soak of `make deep`, one short round: live runs, a kill, and a witness outside that counts their effects."""

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


@pytest.mark.deep
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


def samples(**rises: float) -> list[tuple[float, dict[str, float]]]:
    """Ten minutes of samples, of which each named figure rises by so much of itself."""
    figures = {"blocks": 200_000.0, "objects": 70_000.0, "heap_kib": 9_000.0, "resident_kib": 60_000.0}

    def at(second: int) -> dict[str, float]:
        return {
            name: value * (1 + rises.get(name, 0) * second / 600 + second % 7 / 1000) for name, value in figures.items()
        }

    return [(1_000.0 + second, at(second)) for second in range(0, 600, 10)]


@pytest.mark.parametrize("figure", ["blocks", "objects", "heap_kib"])
def test_what_a_process_keeps_is_judged_by_the_line_through_its_samples(figure: str):
    module = runpy.run_path(str(SOAK))
    judged, grown = module["judged"], module["grown"]
    flat, rising = judged(samples(), 10), judged(samples(**{figure: 0.2}), 10)
    assert flat["flat"] is True
    assert grown(flat) == []
    assert rising["flat"] is False
    assert len(grown(rising)) == 1
    assert judged(samples(**{figure: 0.2}), 1)["flat"] is None, "a minute says nothing"


def test_objects_of_live_runs_are_no_growth():
    judged = runpy.run_path(str(SOAK))["judged"]

    def with_live(rises: float) -> list[tuple[float, dict[str, float]]]:
        """More and more live runs, each of 500 objects; and what is kept rises by so much of itself."""
        live = [100.0 + at * 0.05 + (at * 7919 % 13) for at, _ in samples()]
        return [
            (at, {**figures, "live": live[n], "objects": figures["objects"] + 500 * live[n]})
            for n, (at, figures) in enumerate(samples(objects=rises))
        ]

    assert judged(with_live(0), 10)["flat"] is True
    assert judged(with_live(0.4), 10)["flat"] is False


def test_arenas_that_a_peak_took_are_no_growth_and_those_of_a_leak_are():
    judged = runpy.run_path(str(SOAK))["judged"]
    assert judged(samples(resident_kib=0.1), 10)["flat"] is True
    assert judged(samples(resident_kib=0.4), 10)["flat"] is False
