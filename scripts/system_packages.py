"""Install the system packages that the tests need, where we may; name them where we may not.

This is the one list of them. It needs nothing but Python, because it runs before any environment exists.
What cannot be installed is named and the tests go on: those that need it fail, they are never skipped.
"""

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple


class SystemPackage(NamedTuple):
    """A Debian package, whether it is missing here, and what needs it."""

    name: str
    missing: bool
    purpose: str


LIBRARY: Final = f"python{sys.version_info[0]}.{sys.version_info[1]}"
NEEDED: Final = (
    SystemPackage("python3-venv", importlib.util.find_spec("ensurepip") is None, "makes the environments"),
    SystemPackage("strace", shutil.which("strace") is None, "counts syncs and traces writes of the journal"),
    SystemPackage("gcc", shutil.which("gcc") is None, "builds the shim that makes system calls fail"),
    SystemPackage(
        "chromium",
        not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
        "opens the pages of the inbox as people do",
    ),
    SystemPackage("prometheus", shutil.which("promtool") is None, "scrapes a worker, and tests the alert rules"),
    SystemPackage(
        f"lib{LIBRARY}",
        sys.base_prefix == "/usr" and ctypes.util.find_library(LIBRARY) is None,
        "the OpenTelemetry collector is linked with it; a Python from elsewhere has it or goes without",
    ),
    SystemPackage("libc6-dev", not Path("/usr/include/stdio.h").exists(), "headers for that shim"),
)


def main() -> None:
    """Install what is missing, or say what to install."""
    missing = [package for package in NEEDED if package.missing]
    if not missing:
        return
    for package in missing:
        _say(f"missing: {package.name} ({package.purpose})")
    names = [package.name for package in missing]
    right = _right_to_install()
    if right is None or not _install(right, names):
        _say(f"not installed: {' '.join(names)}. Install them yourself; the tests that need them will fail.")


def _right_to_install() -> list[str] | None:
    """The prefix that lets a command install packages (none as root, else sudo), or None if nothing does."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if shutil.which("sudo") is None or subprocess.run([*sudo, "true"], check=False).returncode != 0:
        return None
    return sudo


def _install(prefix: list[str], names: list[str]) -> bool:
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    return _run([*apt, "update"]) and _run([*apt, "install", "-y", "--no-install-recommends", *names])


def _run(command: list[str]) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode == 0


def _say(text: str) -> None:
    print(f"beforehand: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
