"""The Python that has the systems we compare with, at the versions of the dependency group `bench`.

`make bench` starts us in such an environment. Started otherwise, an environment of the peers' own is made
once, under build/.
"""

import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
HOME: Final = ROOT / "build" / "bench-peers"
STAMP: Final = HOME / "requirements-installed.txt"


def interpreter() -> Path | None:
    """The Python that has the peers; None, said on standard error, when they cannot be installed."""
    wanted = requirements()
    if all(_is_here(requirement) for requirement in wanted):
        return Path(sys.executable)
    python = HOME / "bin" / "python"
    if STAMP.exists() and STAMP.read_text().splitlines() == wanted:
        return python
    print(f"installing the peers into {HOME.relative_to(ROOT)}: {', '.join(wanted)}", file=sys.stderr)
    venv.create(HOME, with_pip=True, clear=True)
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    if subprocess.run(install, stdout=sys.stderr, check=False).returncode:
        print("the peers could not be installed; --no-peers leaves their goals out", file=sys.stderr)
        return None
    STAMP.write_text("\n".join(wanted))  # last, so that a half-made environment is made again
    return python


def requirements() -> list[str]:
    """The peers, each as `name==version`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted: list[str] = project["dependency-groups"]["bench"]
    return wanted


def _is_here(requirement: str) -> bool:
    name, _, wanted = requirement.partition("==")
    try:
        return version(name) == wanted
    except PackageNotFoundError:
        return False
