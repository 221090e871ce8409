"""Waking one run costs as many steps of SQLite's virtual machine among ten thousand as among ninety: nothing is scanned.

The program is the benchmark's own; what it counts does not depend on the machine.
"""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "bench" / "subjects" / "waking.py"


def steps(folder: Path, crowd: int) -> dict[str, float]:
    folder.mkdir()
    program = [sys.executable, str(PROGRAM), "--directory", str(folder), "--crowd", str(crowd)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {kind: count for kind, count in json.loads(done.stdout).items() if kind.endswith("_steps")}


def test_a_wake_up_scans_nothing_that_grows(tmp_path: Path) -> None:
    few = steps(tmp_path / "few", 90)
    assert set(few) == {"answer_steps", "event_steps", "timer_steps"}
    assert all(count > 0 for count in few.values())
    assert steps(tmp_path / "many", 9_999) == few
