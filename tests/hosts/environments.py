"""The interpreters of frameworks and of other foreign programs: each has an environment of its own."""

import functools
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.environment import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


@functools.cache
def python_of(environment: str) -> str:
    """The interpreter of this environment, which is made if it is missing.

    A machine without the frameworks skips their tests. In continuous integration they are skipped only if the package
    index cannot provide the framework: a mistake in a requirement must not look like a machine without a network.
    """
    maker = [sys.executable, str(ROOT / "scripts" / "environment.py"), environment]
    made = _run(*maker, "python", "-c", "import sys; print(sys.executable)")
    if made.returncode == 0:
        return made.stdout.strip()
    why = f"{environment} could not be made: {made.stderr[-500:]}"
    if os.environ.get("CI") and in_index(*sought_in(environment)):
        pytest.fail(why)
    pytest.skip(why)


def sought_in(environment: str) -> tuple[str, ...]:
    """The requirements of the framework alone, without those of the distributions and of its own dependencies."""
    made = ENVIRONMENTS[environment]
    if made.extras is None:
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
        return tuple(one for group in made.groups for one in groups[group])
    extra = made.extras.split(",")[0]  # what its host or the test of a project needs follows
    project = tomllib.loads((ROOT / "packages" / "holdfast" / "pyproject.toml").read_text(encoding="utf-8"))
    return tuple(project["project"]["optional-dependencies"][extra])


def in_index(*requirements: str) -> bool:
    """True if the package index answers and has each of these. Nothing is installed."""
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    try:
        return (
            _run(*pip, "--dry-run", "--no-deps", "--force-reinstall", *requirements, timeout=PATIENCE_S).returncode == 0
        )
    except subprocess.TimeoutExpired:
        return False


def _run(*command: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout)
