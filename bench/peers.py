"""The environment that holds the systems we compare with, kept apart from the project's own.

It is made once, under build/, from the dependency group `bench` of pyproject.toml.
"""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
HOME: Final = ROOT / "build" / "bench-peers"


def interpreter() -> Path | None:
    """The Python that has the peers; None, said on standard error, when they cannot be installed."""
    python = HOME / "bin" / "python"
    wanted = requirements()
    if _installed() == wanted:
        return python
    print(f"installing the peers into {HOME.relative_to(ROOT)}: {', '.join(wanted)}", file=sys.stderr)
    venv.create(HOME, with_pip=True, clear=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        print("the peers could not be installed; --no-peers leaves their goals out", file=sys.stderr)
        return None
    _stamp().write_text("\n".join(wanted))
    return python


def requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted: list[str] = project["dependency-groups"]["bench"]
    return wanted


def _installed() -> list[str]:
    """What the environment was made from; written last, so that a half-made one is made again."""
    return _stamp().read_text().splitlines() if _stamp().exists() else []


def _stamp() -> Path:
    return HOME / "requirements-installed.txt"
