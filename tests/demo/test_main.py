"""`run_demo` as the command line calls it: real services, real workers, real kills."""

import json
import signal
import subprocess
import sys

from holdfast.demo.main import run_demo
from tests.demo.processes import running

COUNTS = {"requested", "once", "twice", "never", "waiting", "refused", "misreported", "kills"}


def test_the_demo_holds_its_promise(capsys):
    status = run_demo(7, as_json=True)
    found = json.loads(capsys.readouterr().out)

    assert found.keys() == {"seed", "holdfast", "without"}
    assert found["seed"] == 7
    for side in ("holdfast", "without"):
        row = found[side]
        assert row.keys() == COUNTS
        assert row["requested"] == 96
        assert row["requested"] == sum(row[fate] for fate in ("once", "twice", "never", "waiting", "refused"))
        assert row["kills"] >= 6
    ours, theirs = found["holdfast"], found["without"]
    assert (ours["twice"], ours["never"], ours["misreported"]) == (0, 0, 0)
    assert ours["waiting"] > 0
    assert ours["refused"] == theirs["refused"] == 5
    assert theirs["twice"] >= 10
    assert status == 0


def test_a_directory_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "holdfast.db").write_text("an earlier demo")
    assert run_demo(7, as_json=True, keep=tmp_path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "is not empty" in " ".join(err.split())
    assert (tmp_path / "holdfast.db").read_text() == "an earlier demo"


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path):
    program = (
        "import sys, pathlib; from holdfast.demo.main import run_demo; run_demo(7, keep=pathlib.Path(sys.argv[1]))"
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
