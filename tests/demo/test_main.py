"""`run_demo` as the command line calls it: real services, real workers, real kills."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from beforehand.demo.main import run_demo
from tests.demo.processes import running

COUNTS = {"requested", "once", "twice", "never", "waiting", "refused", "misreported", "kills", "refunded_twice_cents"}


def test_the_demo_holds_its_promise(capsys):
    status = run_demo(7, as_json=True)
    found = json.loads(capsys.readouterr().out)

    assert found.keys() == {"seed", "beforehand", "without"}
    assert found["seed"] == 7
    for side in ("beforehand", "without"):
        row = found[side]
        assert row.keys() == COUNTS
        assert row["requested"] == 96
        assert row["requested"] == sum(row[fate] for fate in ("once", "twice", "never", "waiting", "refused"))
        assert row["kills"] >= 6
    ours, theirs = found["beforehand"], found["without"]
    assert (ours["twice"], ours["never"], ours["misreported"]) == (0, 0, 0)
    assert ours["waiting"] > 0
    assert ours["refused"] == theirs["refused"] == 5
    assert theirs["twice"] >= 10
    assert (ours["refunded_twice_cents"], theirs["refunded_twice_cents"] > 0) == (0, True)
    assert status == 0


def test_a_directory_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "beforehand.db").write_text("an earlier demo")
    assert run_demo(7, as_json=True, keep=tmp_path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "is not empty" in " ".join(err.split())
    assert (tmp_path / "beforehand.db").read_text() == "an earlier demo"


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path):
    # A shell starts what runs in the background with SIGINT ignored, and so would this demo be, in such a suite.
    program = (
        "import pathlib, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from beforehand.demo.main import run_demo; run_demo(7, keep=pathlib.Path(sys.argv[1]))"
    )
    demo = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while not (running(tmp_path, "worker") and running(tmp_path, "without")):
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=20)
    assert errors.decode().strip().endswith("KeyboardInterrupt")
    assert not any(running(tmp_path, module) for module in ("witness", "worker", "without"))


@pytest.mark.deep
def test_the_commands_that_the_demo_prints_work_where_they_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    assert run_demo(7, keep=tmp_path / "a demo", ask=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.endswith("$0.00 with Beforehand.") and line.startswith("$") for line in lines)
    printed = [line.strip() for line in lines if line.startswith("  beforehand ")]
    assert printed[-1].endswith("a demo/beforehand.db' serve"), printed
    for command in printed[:-1]:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    server = subprocess.Popen(
        [*shlex.split(printed[-1]), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert server.stdout is not None
        assert any("http://127.0.0.1:" in line for line in server.stdout)
    finally:
        server.terminate()
        server.communicate(timeout=30)
