"""Live the year with your own numbers: `python -m studies.year arrivals=400 reviewers=3 --seeds 8`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from studies.year.comparing import Compared, compare
from studies.year.world import Year


def main(arguments: list[str]) -> int:
    """Compare the strategies and print a table."""
    parser = argparse.ArgumentParser(prog="python -m studies.year", description=__doc__)
    names = ", ".join(Year.__struct_fields__)
    parser.add_argument("numbers", nargs="*", metavar="NAME=NUMBER", help=f"what differs from the default: {names}")
    parser.add_argument("--seeds", type=int, default=8, metavar="N", help="how many years to live")
    given = parser.parse_args(arguments)
    pairs = dict(one.partition("=")[::2] for one in given.numbers)
    try:
        year = msgspec.convert(pairs, Year, strict=False)
    except msgspec.ValidationError as error:
        parser.error(str(error))
    if unknown := set(pairs) - set(Year.__struct_fields__):
        parser.error(f"no such number: {', '.join(sorted(unknown))}; there are {names}")
    print(told(compare(year, range(given.seeds))))  # noqa: T201 - a program of its own
    return 0


def told(compared: Compared) -> str:
    """The table, cheapest marked; what these years cannot tell from it is marked, too."""
    lines = [f"{'':22}{'cost/case':>10}{'95 %':>16}{'asked':>8}{'caught':>8}{'attention':>10}"]
    for name, years in compared.lived.items():
        cost = compared.cost(name)
        cases, looks = sum(one.cases for one in years), sum(one.looks for one in years)
        wrong, passed = sum(one.wrong for one in years), sum(one.passed for one in years)
        attention = sum(week.attention for one in years for week in one.weeks) / looks if looks else 0
        span = f"{cost.low:.2f} to {cost.high:.2f}" if cost.low is not None else ""
        mark = " *" if compared.as_cheap(name) else ""
        lines.append(
            f"{name:22}{cost.mean:>10.2f}{span:>16}{looks / cases:>8.0%}{1 - passed / max(1, wrong):>8.0%}"
            f"{attention:>10.0%}{mark}"
        )
    return "\n".join([*lines, "* the cheapest, and what these years cannot tell from it"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
