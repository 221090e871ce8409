"""A process that has imported a program and forks its lives: a life costs milliseconds, and dies as one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Forks:
    """The test's side: ask for lives, one after the other."""

    def __init__(self, module: str) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, *plan: Any) -> int:
        """One life by this plan; how its process ended (negative: the signal)."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps(plan) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def end(self) -> None:
        self._program.communicate(timeout=10)


def serve(child: Callable[..., None]) -> None:
    """The program's side: one plan per line of standard input, one fork for each, one line about its end."""
    for line in sys.stdin:
        plan = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(*plan)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
