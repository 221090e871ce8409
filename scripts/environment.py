"""Run a command inside one of the project's environments, making the environment first if need be.

    python scripts/environment.py NAME COMMAND [ARGUMENT...]

An environment is made once: a stamp in it holds a digest of each pyproject.toml and of the lock, so a second call
only reads these. uv is used when it is there; venv and pip do as well. Everything printed while an environment
is made goes to standard error, because standard output belongs to the command.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
PYPROJECT: Final = ROOT / "pyproject.toml"  # the groups of requirements for development
DISTRIBUTIONS: Final = tuple(sorted(ROOT.glob("packages/*/pyproject.toml")))  # what is developed: all are installed
LOCK: Final = ROOT / "scripts" / "dev.lock"
BACKEND: Final = ("hatchling>=1.27", "editables>=0.5")  # what an editable install needs, without isolation
OLDEST: Final = (3, 11)
ASK_VERSION: Final = "import sys; print(*sys.version_info[:2])"


class Environment(NamedTuple):
    """Where an environment lives, and which dependency groups and distributions it holds.

    `extras` are those of the distributions; with None it holds no distribution.
    """

    directory: str
    extras: str | None
    groups: tuple[str, ...]
    locked: bool = False


ENVIRONMENTS: Final = {
    "demo": Environment(".venv", "demo", ()),
    "dev": Environment(".venv", "apsw,demo", ("lint", "test"), locked=True),
    "audit": Environment(".venv-audit", "", ("audit",)),
    # The peers that are measured and the site generator bring large trees (and pytest plugins) of their own.
    "bench": Environment(".venv-bench", "apsw,demo", ("bench",)),
    "bench-hosts": Environment(".venv-bench-hosts", "pydantic-ai,langchain,openai-agents", ("bench",)),
    "docs": Environment(".venv-docs", "demo", ("docs",)),
    # Not part of this project, and available for some platforms and Python versions only.
    "collector": Environment(".venv-collector", None, ("collector",)),
    # Each framework that hosts runs, at its newest supported version: two of them do not fit into one environment. The
    # lowest one runs first and is killed, and the newest one continues. Pydantic AI has one supported version today.
    # Beside its framework each holds what the project of `holdfast init` needs for its test.
    "host-pydantic-ai": Environment(".venv-host-pydantic-ai", "pydantic-ai,rules", ("host", "host-pydantic-ai")),
    "host-langchain": Environment(".venv-host-langchain", "langchain,rules", ("host",)),
    "host-crewai": Environment(".venv-host-crewai", "crewai,rules", ("host",)),
    "host-google-adk": Environment(".venv-host-google-adk", "google-adk,rules", ("host", "host-google-adk")),
    "host-fastapi": Environment(".venv-host-fastapi", "fastapi,openai,rules", ("host",)),
    "host-openai-agents": Environment(".venv-host-openai-agents", "openai-agents,rules", ("host",)),
    "host-langchain-lowest": Environment(".venv-host-langchain-lowest", "langchain", ("lowest-langchain",)),
    "host-openai-agents-lowest": Environment(
        ".venv-host-openai-agents-lowest", "openai-agents", ("lowest-openai-agents",)
    ),
    "host-google-adk-lowest": Environment(
        ".venv-host-google-adk-lowest", "google-adk", ("lowest-google-adk", "host-google-adk")
    ),
    "host-crewai-lowest": Environment(".venv-host-crewai-lowest", "crewai", ("lowest-crewai",)),
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
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process that makes it now would remove what this one installs
        if not (_usable(place) and stamp.is_file() and stamp.read_text() == digest):
            _say(f"preparing {environment.directory} for '{name}' (once; a minute or so)")
            _install(place, environment)
            stamp.write_text(digest)
    binaries = place / "bin"
    os.environ["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    os.environ["VIRTUAL_ENV"] = str(place)
    os.execvp(command[0], command)


def _digest(environment: Environment) -> str:
    locked = LOCK.read_bytes() if environment.locked and LOCK.is_file() else b""
    stated = b"".join(path.read_bytes() for path in (PYPROJECT, *DISTRIBUTIONS))
    return hashlib.sha256(stated + locked + repr(environment).encode()).hexdigest()


def _usable(place: Path) -> bool:
    """Whether `place` holds a Python that is new enough and, if PYTHON was set, of the version it names."""
    try:
        shown = subprocess.check_output([place / "bin" / "python", "-c", ASK_VERSION])
    except (OSError, subprocess.CalledProcessError):
        return False
    version = tuple(int(part) for part in shown.split())
    return version == sys.version_info[:2] if os.environ.get("PYTHON") else version >= OLDEST


def _project(distribution: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(distribution.read_text())["project"]
    return project


def _extras(project: dict[str, Any], environment: Environment) -> list[str]:
    """The extras of the environment that this distribution has."""
    return [
        extra for extra in (environment.extras or "").split(",") if extra in project.get("optional-dependencies", {})
    ]


def _editable(distribution: Path, environment: Environment) -> tuple[str, str]:
    extras = ",".join(_extras(_project(distribution), environment))
    return "--editable", f"{distribution.parent}{f'[{extras}]' if extras else ''}"


def _in_groups(environment: Environment) -> list[str]:
    """The requirements of its groups, spelled out because older pips cannot read groups."""
    groups = tomllib.loads(PYPROJECT.read_text())["dependency-groups"]
    return [requirement for group in environment.groups for requirement in groups[group]]


def _requirements(environment: Environment) -> list[str]:
    """The distributions, editable, if the environment holds them, and its groups."""
    held = DISTRIBUTIONS if environment.extras is not None else ()
    ours = [word for distribution in held for word in _editable(distribution, environment)]
    return [*ours, *_in_groups(environment)]


def locked_requirements() -> list[str]:
    """What the lock has to hold: the dependencies, extras and groups of `dev`, and the build backend."""
    environment, projects = ENVIRONMENTS["dev"], [_project(one) for one in DISTRIBUTIONS]
    ours = {project["name"] for project in projects}
    listed = [one for project in projects for one in project["dependencies"]]
    listed += [
        one
        for project in projects
        for extra in _extras(project, environment)
        for one in project["optional-dependencies"][extra]
    ]
    foreign = [one for one in listed if re.split(r"[^\w.-]", one)[0] not in ours]
    return [*foreign, *_in_groups(environment), *BACKEND]


def install_with(pip: Callable[..., bool], environment: Environment) -> bool:
    """Install by the lock where there is one for this environment; by the ranges where the lock does not fit here.

    With the variable LOCKED nothing but the lock is installed.
    """
    if environment.locked and LOCK.is_file():
        ours = [word for distribution in DISTRIBUTIONS for word in ("--editable", str(distribution.parent))]
        if pip("--require-hashes", "--requirement", str(LOCK)) and pip("--no-build-isolation", "--no-deps", *ours):
            return True
        if os.environ.get("LOCKED"):
            return False
        _say("the lock cannot be used here (the reason is above); installing by the ranges of pyproject.toml, unlocked")
    return pip(*_requirements(environment))


def _install(place: Path, environment: Environment) -> None:
    uv = shutil.which("uv")
    if uv and _with_uv(uv, place, environment):
        return
    if uv:
        _say("uv could not; trying venv and pip")
    if not _with_pip(place, environment):
        sys.exit(
            f"holdfast: {place.name} could not be made; the reason is above, and the next call starts again. "
            "On Debian, python3 makes environments only with the package python3-venv."
        )


def _with_uv(uv: str, place: Path, environment: Environment) -> bool:
    made = _usable(place) or _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    command = (uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"))
    return made and install_with(lambda *given: _run(*command, *given), environment)


def _with_pip(place: Path, environment: Environment) -> bool:
    made = _usable(place) or _run(sys.executable, "-m", "venv", "--clear", str(place))
    if not made:
        return False
    python = str(place / "bin" / "python")
    has_pip = _run(python, "-c", "import pip") or _run(python, "-m", "ensurepip")
    quietly = ["--quiet", "--disable-pip-version-check"]
    command = (python, "-m", "pip", "install", *quietly)
    return has_pip and install_with(lambda *given: _run(*command, *given), environment)


def _run(*command: str) -> bool:
    return subprocess.run(command, stdout=sys.stderr, cwd=ROOT, check=False).returncode == 0


def _say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
