"""The script that says what holds on a system: here all of it holds, and a fault is reported, not passed over."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import platform_check
from scripts.platform_check import Finding
from tests import forked
from tests.tidy.tree import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="what the script prints elsewhere is to be found out")
def test_on_linux_everything_holds_and_deaths_are_proven():
    ended = forked.run(["scripts/platform_check.py", "--without-demo"], cwd=ROOT)
    lines = ended.stdout.splitlines()
    doubted = [line for line in lines if line.startswith(("FAILS", "unproven")) and "machine" not in line]
    assert (doubted, ended.returncode, ended.stderr) == ([], 0, "")
    names = {line[10:].partition(":")[0] for line in lines[1:-1]}
    assert names >= {"clock", "proof of death", "lock", "pragma fullfsync", "sync", "kill -9", "recovery", "takeover"}


def check_that_breaks(_place: Path) -> Iterator[Finding]:
    yield Finding("first", None, "unproven")
    raise OSError("no such call")


@pytest.mark.parametrize(("fails", "status"), [(True, 1), (False, 0)])
def test_a_check_that_breaks_is_a_finding_and_the_rest_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool, status: int
):
    monkeypatch.setattr(sys, "argv", ["platform_check.py", "--without-demo"])
    monkeypatch.setattr(platform_check, "names", check_that_breaks if fails else platform_check.names)
    for name in ("deaths", "locks", "kills"):
        monkeypatch.setattr(platform_check, name, lambda _: iter([Finding("unknown", None, "no answer")]))
    assert platform_check.main() == status
    said = capsys.readouterr().out
    assert ("FAILS     check_that_breaks: OSError: no such call" in said) is fails
    assert "pragma fullfsync: is 1" in said
    assert said.splitlines()[-1].startswith("Something" if fails else "Nothing fails. What is unproven costs time")
