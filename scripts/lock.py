"""Write scripts/dev.lock: the exact versions and hashes of everything in the environment for development.

    python scripts/lock.py          as make lock; needs uv

The lock holds for every platform and for Python 3.11 and newer. It records no address of an index.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import LOCK, locked_requirements


def main() -> int:
    """Write the lock; the exit status of uv."""
    uv = shutil.which("uv")
    if uv is None:
        print("the lock is made with uv: install uv, then run make lock", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as place:
        given = Path(place) / "requirements.in"
        given.write_text("\n".join(locked_requirements()) + "\n")
        command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
        spelled = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", *sys.argv[1:]]
        return subprocess.run(
            [*command, *spelled, "--output-file", str(LOCK), str(given)], check=False, stdout=subprocess.DEVNULL
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
