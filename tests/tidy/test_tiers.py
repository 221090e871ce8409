"""The commands behind the tiers of the suite: what `make deep` refuses and repeats, what the costs fail on."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import costs, deep
from tests import draws, forked
from tests.conftest import NOT_REACHED, Progress
from tests.tidy.tree import ROOT


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "crash,nonsense"], "ONLY names no part: nonsense; the parts are sim, "),
        (["--minutes", "0"], "MINUTES must leave time for one part, 5 seconds, got 0 minutes"),
        (["--minutes", "nan"], "MINUTES must leave time"),
        (["--seed", "7"], "SEED tells the story of one simulated seed: add ONLY=sim"),
        (["--only", "sim", "--seed", "-1"], "SEED is a whole number from 0 on, got -1"),
        (["--only", "sim hosts", "--", "tests/unit"], "ARGS are handed to one part: name it with ONLY"),
    ],
)
def test_what_deep_cannot_do_is_said_in_a_sentence(words: list[str], told: str):
    ended = forked.run(["-m", "scripts.deep", *words], cwd=ROOT)
    assert ended.returncode == 2
    assert told in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    "test", ["tests/a.py::test_b", "tests/a.py::test_b[it's 'so']", 'tests/a.py::test_b["$x `y` \\n z"]', "a b"]
)
def test_a_printed_command_names_the_test_that_was_red(test: str, tmp_path: Path):
    (tmp_path / "Makefile").write_text(f"show:\n\t@{sys.executable} -c 'import sys; print(sys.argv[1:])' $(ARGS)\n")
    printed = subprocess.run(
        f"make --no-print-directory show ARGS={deep._quoted(test)}",
        shell=True, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert printed.stdout.strip() == repr([test])


@pytest.mark.parametrize(
    ("when", "kind", "outcome"),
    [
        ("call", "passed", "passed"),
        ("call", "failed", "failed"),
        ("setup", "failed", "failed"),
        ("setup", "skipped", deep.LATE),
    ],
)
def test_a_test_that_was_not_reached_is_not_counted_as_passed(
    when: str, kind: str, outcome: str, tmp_path: Path, pytestconfig: pytest.Config
):  # fmt: skip
    progress = Progress(pytestconfig)
    progress.path = tmp_path / "progress"
    progress.pytest_runtest_logstart("t")
    for each, ended in ((when, kind), ("teardown", "passed")):
        told = SimpleNamespace(
            nodeid="t", when=each, failed=ended == "failed", skipped=ended == "skipped", outcome=ended
        )
        told.longrepr = NOT_REACHED if ended == "skipped" else None
        progress.pytest_runtest_logreport(told)  # type: ignore[arg-type]  # as pytest makes it
    progress.pytest_runtest_logstart("u")
    lines = progress.path.read_text(encoding="utf-8").splitlines()
    assert deep._outcomes(lines) == {"t": outcome, "u": ""}


@pytest.mark.parametrize(
    ("loops", "seconds", "status"), [(125, 30.0, 0), (126, 30.0, 1), (900, 19.0, 0)], ids=["fits", "grown", "small"]
)
def test_a_directory_that_costs_too_much_more_fails(
    loops: int, seconds: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):  # fmt: skip
    monkeypatch.setattr(costs, "MEASURED", tmp_path / "measured")
    monkeypatch.setattr(costs, "STORED", tmp_path / "stored")
    monkeypatch.setattr(sys, "argv", ["costs"])
    assert costs.main() == 2
    assert "run `make test` first" in capsys.readouterr().err
    (tmp_path / "stored").write_text('{"crash": 100}')
    rows = {"crash": {"tests": 3, "seconds": seconds, "loops": loops}}
    (tmp_path / "measured").write_text(json.dumps({"loop_seconds": 0.01, "directories": rows}))
    assert costs.main() == status
    assert ("crash takes more than 1.25 times" in capsys.readouterr().out) is bool(status)


def test_deep_takes_the_rest_of_a_matrix_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch):
    assert list(draws.pick(range(5), [2, 4])) == [2, 4]
    monkeypatch.setattr(draws.Tier, "deep", True)
    assert sorted(draws.pick(range(5), [2, 4])) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(draws.Tier, "until", 0.0)
    assert list(draws.pick(range(5), [2, 4])) == [2, 4]


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("sys.stdout.reconfigure(errors='backslashreplace'); print('caf\\udce9', sys.stdout.line_buffering)", 0),
    ],
)
def test_a_forked_program_ends_as_one_of_its_own_does(program: str, status: int, tmp_path: Path):
    said = "import sys; print(sys.argv, file=sys.stderr, flush=True);"
    arguments = ["-c", said + program, "a b"]
    alone = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    apart = forked.run(arguments, cwd=tmp_path)
    assert (apart.returncode, apart.stdout, apart.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert apart.returncode == status


def test_a_forked_program_that_hangs_is_ended(tmp_path: Path):
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run(["-c", "import signal; signal.pause()"], cwd=tmp_path, timeout=0.1)


def test_a_forked_program_is_killed_and_asked_as_any_other(tmp_path: Path):
    program = "import os, signal; print(os.getcwd(), os.getsid(0) == os.getpid(), flush=True); signal.pause()"
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with forked.start(["-c", program], cwd=tmp_path, start_new_session=True, **streams) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{tmp_path} True\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert (process.wait(30), process.poll()) == (-9, -9)
