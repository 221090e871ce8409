"""Run a command inside one of the project's environments, making the environment first if need be.

    python scripts/environment.py NAME COMMAND [ARGUMENT...]

An environment is made once: a stamp in it holds a digest of pyproject.toml, so a second call only reads
two files. uv is used when it is there; venv and pip do as well. Everything printed while an environment
is made goes to standard error, because standard output belongs to the command.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
PYPROJECT: Final = ROOT / "pyproject.toml"
OLDEST: Final = (3, 11)
ASK_VERSION: Final = "import sys; print(*sys.version_info[:2])"


class Environment(NamedTuple):
    """Where an environment lives, and which extras and dependency groups it holds beside the package."""

    directory: str
    extras: str
    groups: tuple[str, ...]


ENVIRONMENTS: Final = {
    "demo": Environment(".venv", "demo", ()),
    "dev": Environment(".venv", "apsw,demo", ("lint", "test")),
    # The peers that are measured and the site generator bring large trees (and pytest plugins) of their own.
    "bench": Environment(".venv-bench", "apsw,demo", ("bench",)),
    "docs": Environment(".venv-docs", "demo", ("docs",)),
}


def main() -> NoReturn:
    """Make the named environment when it is missing or out of date, then become the command."""
    if len(sys.argv) < 3 or sys.argv[1] not in ENVIRONMENTS:
        sys.exit(f"usage: environment.py {{{','.join(ENVIRONMENTS)}}} COMMAND [ARGUMENT...]")
    name, command = sys.argv[1], sys.argv[2:]
    environment = ENVIRONMENTS[name]
    place = ROOT / environment.directory
    stamp = place / f".holdfast-{name}"
    digest = _digest(environment)
    if not (_usable(place) and stamp.is_file() and stamp.read_text() == digest):
        _say(f"preparing {environment.directory} for '{name}' (once; a minute or so)")
        _install(place, _requirements(environment))
        stamp.write_text(digest)
    binaries = place / "bin"
    os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    os.environ["VIRTUAL_ENV"] = str(place)
    os.execvp(command[0], command)


def _digest(environment: Environment) -> str:
    return hashlib.sha256(PYPROJECT.read_bytes() + repr(environment).encode()).hexdigest()


def _usable(place: Path) -> bool:
    """Whether `place` holds a Python that is new enough and, if PYTHON was set, of the version it names."""
    try:
        shown = subprocess.check_output([place / "bin" / "python", "-c", ASK_VERSION])
    except (OSError, subprocess.CalledProcessError):
        return False
    version = tuple(int(part) for part in shown.split())
    return version == sys.version_info[:2] if os.environ.get("PYTHON") else version >= OLDEST


def _requirements(environment: Environment) -> list[str]:
    """The package itself, editable, and its groups, spelled out because older pips cannot read groups."""
    groups = tomllib.loads(PYPROJECT.read_text())["dependency-groups"]
    listed = [requirement for group in environment.groups for requirement in groups[group]]
    return ["--editable", f"{ROOT}[{environment.extras}]", *listed]


def _install(place: Path, requirements: list[str]) -> None:
    uv = shutil.which("uv")
    if uv and _with_uv(uv, place, requirements):
        return
    if uv:
        _say("uv could not; trying venv and pip")
    if not _with_pip(place, requirements):
        sys.exit(
            f"holdfast: {place.name} could not be made; the reason is above, and the next call starts again. "
            "On Debian, python3 makes environments only with the package python3-venv."
        )


def _with_uv(uv: str, place: Path, requirements: list[str]) -> bool:
    made = _usable(place) or _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    return made and _run(uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), *requirements)


def _with_pip(place: Path, requirements: list[str]) -> bool:
    made = _usable(place) or _run(sys.executable, "-m", "venv", "--clear", str(place))
    if not made:
        return False
    python = str(place / "bin" / "python")
    has_pip = _run(python, "-c", "import pip") or _run(python, "-m", "ensurepip")
    quietly = ["--quiet", "--disable-pip-version-check"]
    return has_pip and _run(python, "-m", "pip", "install", *quietly, *requirements)


def _run(*command: str) -> bool:
    return subprocess.run(command, stdout=sys.stderr, cwd=ROOT, check=False).returncode == 0


def _say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
