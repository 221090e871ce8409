"""Run a command inside one of the project's environments, making the environment first if need be.

    python scripts/environment.py NAME COMMAND [ARGUMENT...]
    python scripts/environment.py --prepare test

The second form makes every environment that a tier of tests needs, all at the same time: tests make none themselves.
One of a framework that cannot be made is named and left out, and the tests of that framework are skipped.

An environment is made once: a stamp in it holds a digest of each pyproject.toml and of the lock, so a second call
only reads these. uv installs; where it is not there, a locked one is installed into an environment of its own, and
where that fails, venv and pip do as well. Everything printed while an environment is made goes to standard error,
because standard output belongs to the command.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
PYPROJECT: Final = ROOT / "pyproject.toml"  # the groups of requirements for development
DISTRIBUTIONS: Final = tuple(sorted(ROOT.glob("packages/*/pyproject.toml")))  # what is developed: all are installed
BACKEND: Final = ("hatchling>=1.27", "editables>=0.5")  # what an editable install needs, without isolation
OLDEST: Final = (3, 11)
ASK_VERSION: Final = "import sys; print(*sys.version_info[:2])"


class Environment(NamedTuple):
    """Where an environment lives, and which dependency groups and distributions it holds.

    `extras` are those of the distributions; with None it holds no distribution. With `lock`, the exact versions and
    hashes of everything else in it are in the file `scripts/LOCK.lock`.
    """

    directory: str
    extras: str | None
    groups: tuple[str, ...]
    lock: str = ""


ENVIRONMENTS: Final = {
    "demo": Environment(".venv", "demo", ()),
    "dev": Environment(".venv", "apsw,demo", ("lint", "test"), "dev"),
    "uv": Environment(".venv-uv", None, ("uv",), "uv"),
    "audit": Environment(".venv-audit", "", ("audit",)),
    # The peers that are measured and the site generator bring large trees (and pytest plugins) of their own.
    "bench": Environment(".venv-bench", "apsw,demo", ("bench",)),
    "bench-hosts": Environment(".venv-bench-hosts", "pydantic-ai,langchain,openai-agents", ("bench",)),
    "docs": Environment(".venv-docs", "demo", ("docs",)),
    # Not part of this project, and available for some platforms and Python versions only.
    "collector": Environment(".venv-collector", None, ("collector",)),
    # The frameworks that host runs, at their newest supported versions. CrewAI needs a Pydantic that the others no
    # longer take. Beside its frameworks each holds what a project of `beforehand init` needs for its test.
    "hosts": Environment(
        ".venv-hosts",
        "pydantic-ai,langchain,openai-agents,google-adk,fastapi,openai",
        ("host", "host-pydantic-ai", "host-google-adk"),
        "hosts",
    ),
    "host-crewai": Environment(".venv-host-crewai", "crewai", ("host",), "host-crewai"),
    # The lowest supported versions: a run starts with one, is killed, and the newest one continues. Pydantic AI has one
    # supported version today.
    "hosts-lowest": Environment(
        ".venv-hosts-lowest",
        "langchain,openai-agents,google-adk,crewai",
        ("lowest-langchain", "lowest-openai-agents", "lowest-google-adk", "lowest-crewai", "host-google-adk"),
        "hosts-lowest",
    ),
}
PREPARED: Final = {
    "test": ("dev", "hosts", "host-crewai", "collector"),
    "deep": ("dev", "hosts", "host-crewai", "collector", "hosts-lowest"),
}
"""What each tier of tests needs. Only `dev` must be there; the tests of another one that is missing are skipped."""
BESIDE: Final = ("openai",)  # extras that projects with a framework need beside it
PATIENCE_S: Final = 120


def main() -> NoReturn:
    """Make the named environment when it is missing or out of date, then become the command; or prepare a tier."""
    if len(sys.argv) == 3 and sys.argv[1] == "--prepare" and sys.argv[2] in PREPARED:
        sys.exit(0 if prepare(PREPARED[sys.argv[2]]) else 1)
    if len(sys.argv) < 3 or sys.argv[1] not in ENVIRONMENTS:
        sys.exit(
            f"usage: environment.py {{{','.join(ENVIRONMENTS)}}} COMMAND [ARGUMENT...]\n"
            f"       environment.py --prepare {{{','.join(PREPARED)}}}"
        )
    name, command = sys.argv[1], sys.argv[2:]
    if not make(name):
        sys.exit(1)
    place = ROOT / ENVIRONMENTS[name].directory
    os.environ["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ["VIRTUAL_ENV"] = str(place)
    # The tests begin thousands of processes, and each of them would compile the same modules again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execvp(command[0], command)


def prepare(names: tuple[str, ...]) -> bool:
    """Make these environments at the same time. Whether the tests may begin.

    Without `dev` they may not. The tests of another environment that cannot be made are skipped. In continuous
    integration that holds only if the package index cannot provide the framework: a mistake in a requirement must not
    look like a machine without a network.
    """
    with ThreadPoolExecutor(len(names) + 1) as pool:
        pool.submit(_compile_tests)
        made = dict(zip(names, pool.map(make, names), strict=True))
    begins = made["dev"]
    for name in (name for name, there in made.items() if not there and name != "dev"):
        if os.environ.get("CI") and in_index(sought_in(ENVIRONMENTS[name])):
            _say(f"the package index has what '{name}' is for: that it cannot be made is a mistake")
            begins = False
        else:
            _say(f"the tests that need '{name}' are skipped, because it cannot be made here")
    return begins


def _compile_tests() -> None:
    """Collect the tests once in a fresh checkout: else each process that runs them would compile them all."""
    if not make("dev") or (ROOT / "tests/unit/__pycache__").exists():
        return
    command = [str(ROOT / ENVIRONMENTS["dev"].directory / "bin/pytest"), "--collect-only", "-qq"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, env=kept, stdout=subprocess.DEVNULL, check=False)


def sought_in(environment: Environment) -> tuple[str, ...]:
    """The requirements of its frameworks alone, without those of the distributions and of its own dependencies."""
    if environment.extras is None:
        return tuple(_in_groups(environment))
    stated = [_project(distribution).get("optional-dependencies", {}) for distribution in DISTRIBUTIONS]
    extras = [extra for extra in environment.extras.split(",") if extra not in BESIDE]
    return tuple(requirement for named in stated for extra in extras for requirement in named.get(extra, ()))


def in_index(requirements: tuple[str, ...]) -> bool:
    """True if the package index answers and has each of these. Nothing is installed."""
    uv, python = uv_command(), str(ROOT / ENVIRONMENTS["dev"].directory / "bin" / "python")
    pip = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
    command = (*pip, "--quiet", "--dry-run", "--no-deps", "--force-reinstall", *requirements)
    try:
        return subprocess.run(command, cwd=ROOT, check=False, timeout=PATIENCE_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def make(name: str) -> bool:
    """Make the environment when it is missing or out of date. Whether it is there."""
    environment = ENVIRONMENTS[name]
    place = ROOT / environment.directory
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process that makes it now would remove what this one installs
        if python_in(name):
            return True
        _say(f"preparing {environment.directory} for '{name}' (once)")
        began = time.monotonic()
        if not _install(place, environment):
            _say(
                f"{place.name} could not be made; the reason is above, and the next call starts again. "
                "On Debian, python3 makes environments only with the package python3-venv."
            )
            return False
        _stamp(name).write_text(_digest(environment))
        _say(f"{environment.directory} took {time.monotonic() - began:.0f} s")
    return True


def python_in(name: str) -> Path | None:
    """The interpreter of the environment; None where it is missing or out of date. Nothing is made."""
    environment = ENVIRONMENTS[name]
    place, stamp = ROOT / environment.directory, _stamp(name)
    current = stamp.is_file() and stamp.read_text() == _digest(environment) and _usable(place)
    return place / "bin" / "python" if current else None


def _stamp(name: str) -> Path:
    return ROOT / ENVIRONMENTS[name].directory / f".beforehand-{name}"


def lock_of(environment: Environment) -> Path:
    """Where its lock lies, or would lie."""
    return ROOT / "scripts" / f"{environment.lock}.lock"


def _digest(environment: Environment) -> str:
    lock = lock_of(environment)
    locked = lock.read_bytes() if lock.is_file() else b""
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


def _kept(place: Path) -> bool:
    """Whether `place` can be added to: one that was made for other distributions would still look for these."""
    return _usable(place) and any(place.glob(".beforehand-*"))


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


def locked_requirements(environment: Environment) -> list[str]:
    """What its lock has to hold: the dependencies and extras of the distributions, its groups, the build backend."""
    if environment.extras is None:
        return _in_groups(environment)
    projects = [_project(distribution) for distribution in DISTRIBUTIONS]
    ours = {project["name"] for project in projects}
    listed = [requirement for project in projects for requirement in project["dependencies"]]
    listed += [
        requirement
        for project in projects
        for extra in _extras(project, environment)
        for requirement in project["optional-dependencies"][extra]
    ]
    foreign = [requirement for requirement in listed if re.split(r"[^\w.-]", requirement)[0] not in ours]
    return [*foreign, *_in_groups(environment), *BACKEND]


def install_with(pip: Callable[..., bool], environment: Environment) -> bool:
    """Install by the lock where there is one for this environment; by the ranges where the lock does not fit here.

    The lock is whole, so nothing is resolved. With the variable LOCKED nothing but the lock is installed.
    """
    lock = lock_of(environment)
    if lock.is_file():
        held = DISTRIBUTIONS if environment.extras is not None else ()
        ours = [word for distribution in held for word in ("--editable", str(distribution.parent))]
        if pip("--require-hashes", "--no-deps", "--requirement", str(lock)) and (
            not ours or pip("--no-build-isolation", "--no-deps", *ours)
        ):
            return True
        if os.environ.get("LOCKED"):
            return False
        _say("the lock cannot be used here (the reason is above); installing by the ranges of pyproject.toml, unlocked")
    return pip(*_requirements(environment))


def _install(place: Path, environment: Environment) -> bool:
    uv = None if environment is ENVIRONMENTS["uv"] else uv_command()
    if uv and _with_uv(uv, place, environment):
        return True
    if uv:
        _say("uv could not; trying venv and pip")
    return _with_pip(place, environment)


def uv_command() -> str | None:
    """The uv of this machine, or the locked one, which is installed if need be; None where pip has to do."""
    if uv := shutil.which("uv"):
        return uv
    with _ASKING:
        if not _OURS:
            _OURS.append(_locked_uv())
    return _OURS[0] or None


_ASKING: Final = threading.Lock()
_OURS: Final[list[str]] = []  # a failure is not repeated for each environment


def _locked_uv() -> str:
    """It does not read the settings of pip: empty where those name an index in place of the public one."""
    if not make("uv"):
        return ""
    place = ROOT / ENVIRONMENTS["uv"].directory / "bin"
    command = (place / "python", "-m", "pip", "config", "list")
    settings = subprocess.run(command, capture_output=True, text=True, check=False)
    elsewhere = re.search(r"^[^=]*\.index.url=", settings.stdout, flags=re.MULTILINE)
    return "" if elsewhere else str(place / "uv")


def _with_uv(uv: str, place: Path, environment: Environment) -> bool:
    made = _kept(place) or _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    command = (uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"))
    return made and install_with(lambda *given: _run(*command, *given), environment)


def _with_pip(place: Path, environment: Environment) -> bool:
    made = _kept(place) or _run(sys.executable, "-m", "venv", "--clear", str(place))
    if not made:
        return False
    python = str(place / "bin" / "python")
    has_pip = _run(python, "-c", "import pip") or _run(python, "-m", "ensurepip")
    quietly = ["--quiet", "--disable-pip-version-check"]
    command = (python, "-m", "pip", "install", *quietly, "--no-compile")  # most of a framework is never imported
    return has_pip and install_with(lambda *given: _run(*command, *given), environment)


def _run(*command: str) -> bool:
    return subprocess.run(command, stdout=sys.stderr, cwd=ROOT, check=False).returncode == 0


def _say(text: str) -> None:
    sys.stderr.write(f"beforehand: {text}\n")  # in one piece: environments are made at the same time


if __name__ == "__main__":
    main()
