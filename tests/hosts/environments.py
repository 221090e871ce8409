"""The interpreters of the frameworks: each has an environment of its own."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@functools.cache
def python_of(environment: str) -> str:
    """The interpreter of this environment, which is made if it is missing. Skips where that cannot be done."""
    maker = [sys.executable, str(ROOT / "scripts" / "environment.py"), environment]
    made = subprocess.run(
        [*maker, "python", "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if made.returncode:
        # A machine without the package registry runs everything else.
        pytest.skip(f"{environment} could not be made: {made.stderr[-500:]}")
    return made.stdout.strip()
