"""Compare the locked dependencies of development with the database of known vulnerabilities.

    python scripts/audit.py

Without a network there is no database: the audit is skipped with a message, and that is decided within seconds.
"""

import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).resolve().with_name("dev.lock")
DATABASE: Final = "https://pypi.org/pypi/pip/24.0/json"
PATIENCE_S: Final = 4.0
AT_MOST_S: Final = 180


def main() -> int:
    """Audit, or say why not; the exit status of pip-audit."""
    if why := unreachable(DATABASE, PATIENCE_S):
        return skipped(why)
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip", "--require-hashes"]
    try:
        status = subprocess.run([*command, "--progress-spinner", "off"], timeout=AT_MOST_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return skipped(f"it did not answer for every package within {AT_MOST_S} seconds")
    if status and (why := unreachable(DATABASE, PATIENCE_S)):
        return skipped(why)
    return status


def unreachable(url: str, patience_s: float) -> str:
    """Why the database does not answer in time; empty where it does. A name that is looked up for long counts too."""
    found: list[str] = []

    def ask() -> None:
        try:
            with urllib.request.urlopen(url, timeout=patience_s) as answer:  # noqa: S310 - the address is ours
                text = answer.read()
        except (OSError, ValueError) as error:
            found.append(str(error))
        else:  # a mirror may have the packages, and not what is known about them
            found.append("" if b'"vulnerabilities"' in text else "it answers without vulnerabilities")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience_s)
    return found[0] if found else f"no answer within {patience_s:g} seconds"


def skipped(why: str) -> int:
    """Say that nothing was audited."""
    print(
        f"dependency audit skipped: the vulnerability database cannot be used ({why}). Next: make audit, with a network"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
