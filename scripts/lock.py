"""Write scripts/*.lock: the exact versions and hashes of everything in the environments that are locked.

    python scripts/lock.py [OPTION OF UV...]          as make lock

A lock holds for every platform and for Python 3.11 and newer. It records no address of an index.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from environment import ENVIRONMENTS, Environment, lock_of, locked_requirements, uv_command


def main() -> int:
    """Write the locks; 1 where one of them cannot be written."""
    uv = uv_command()
    if uv is None:
        print(
            "the locks are made with uv, which cannot be installed here: install it, then run make lock",
            file=sys.stderr,
        )
        return 1
    return max(write(uv, environment) for environment in ENVIRONMENTS.values() if environment.lock)


def write(uv: str, environment: Environment) -> int:
    """Write one lock; the exit status of uv."""
    with tempfile.TemporaryDirectory() as place:
        given = Path(place) / "requirements.in"
        given.write_text("\n".join(locked_requirements(environment)) + "\n")
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
        spelled = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", *sys.argv[1:]]
        return subprocess.run(
            [*command, *spelled, "--output-file", str(lock_of(environment)), str(given)],
            check=False,
            stdout=subprocess.DEVNULL,
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
