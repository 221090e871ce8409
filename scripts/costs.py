"""Where the time of `make test` went, and whether a directory has become slower.

    python -m scripts.costs           print the table; fail where a directory takes too much more than it did
    python -m scripts.costs --store   keep the figures of this run as those to compare with

`make test` writes `.costs.json`: the processor seconds of each directory of tests, and the same in multiples of a loop
that was timed between the tests (`tests/costs.py`). Seconds of two machines cannot be compared, the multiples can.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
MEASURED: Final = ROOT / ".costs.json"
STORED: Final = ROOT / "tests" / "costs.json"
JUDGED_FROM_S: Final = 20.0
"""Directories that take less are printed only: their figures vary more than a test adds."""
GROWTH_AT_MOST: Final = 1.25


def main() -> int:
    """Print the table, and fail where a directory has grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true", help="keep these figures as those to compare with")
    store = parser.parse_args().store
    if not MEASURED.exists():
        print(f"{MEASURED.name} is not there: run `make test` first, all of it", file=sys.stderr)
        return 2
    measured: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    directories: dict[str, dict[str, float]] = measured["directories"]
    if store:
        loops = {name: row["loops"] for name, row in sorted(directories.items())}
        STORED.write_text(json.dumps(loops, indent=1) + "\n", encoding="utf-8")
    stored: dict[str, int] = json.loads(STORED.read_text(encoding="utf-8"))
    print(f"one loop: {1000 * measured['loop_seconds']:.1f} ms of processor time")
    print(f"{'directory':<18}{'tests':>7}{'s':>8}{'loops':>10}{'stored':>10}{'ratio':>8}")
    grown: list[str] = []
    for name, row in directories.items():
        ratio = row["loops"] / stored[name] if stored.get(name) else None
        shown = f"{ratio:8.2f}" if ratio is not None else "     new"
        print(f"{name:<18}{row['tests']:>7}{row['seconds']:>8.1f}{row['loops']:>10,}{stored.get(name, 0):>10,}{shown}")
        if row["seconds"] > JUDGED_FROM_S and (ratio is None or ratio > GROWTH_AT_MOST):
            grown.append(name)
    tests, seconds = (sum(row[key] for row in directories.values()) for key in ("tests", "seconds"))
    print(f"{'all':<18}{tests:>7}{seconds:>8.1f}")
    for name in grown:
        print(
            f"{name} takes more than {GROWTH_AT_MOST} times its stored multiple. Make its tests faster or mark some as "
            "deep; where the time is worth it, take it out elsewhere, and run python -m scripts.costs --store"
        )
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
