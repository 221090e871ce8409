"""Write docs/explanation/proof.md: simulate seeds, compare the fast path, plant bugs, and put the figures on the page.

    python -m scripts.proof --seeds 4000 --minutes 40
    python -m scripts.proof --only seeds
    python -m simulator.mutations.planting --json >finds.json; python -m scripts.proof --only planted --finds finds.json

Nothing on that page is typed in.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import msgspec

from simulator import campaign, differential
from simulator.failure import INVARIANTS
from simulator.generator.families import FAMILIES
from simulator.generator.hosts import HOSTED
from simulator.generator.models import ROUTED
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.fast_path import FAST_PATH
from simulator.mutations.planting import MOST, Find, plant

TITLES = {"seeds": "## Seeds", "fast-path": "## The fast path", "planted": "## Planted bugs"}
MOST_COMPARED = 3_000
PAGE = Path(__file__).parents[1] / "docs/explanation/proof.md"

HEAD = """# Simulator results

`python -m scripts.proof` writes this page. [The simulator](simulator.md) explains the figures.
"""


class Finds(msgspec.Struct):
    """The output of `python -m simulator.mutations.planting --json`."""

    mutants: list[Find]


def main() -> int:
    """Measure, and write the page. Exit status 1 where an invariant broke, a side differed or a bug was missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=4_000, help="how many seeds to simulate and to compare")
    parser.add_argument("--minutes", type=float, default=40, help="for the planted bugs")
    parser.add_argument("--only", choices=TITLES, action="append", help="measure this part; the others stay")
    parser.add_argument("--finds", type=Path, help="take the planted bugs from this output of the planting command")
    given = parser.parse_args()
    failed = False
    for name in given.only or TITLES:
        match name:
            case "seeds":
                lines, bad = _seeds(given.seeds)
            case "fast-path":
                lines, bad = _fast_path(differential.run(range(given.seeds), tick=_tick))
            case _:
                lines, bad = _planted(_finds(given.finds, given.minutes))
        _put(TITLES[name], lines)
        failed |= bad
    return 1 if failed else 0


def _put(title: str, lines: list[str]) -> None:
    """Replace the part of the page under this title."""
    parts = {part.partition("\n")[0]: part for part in ("\n" + PAGE.read_text(encoding="utf-8")).split("\n## ")[1:]}
    parts[title.removeprefix("## ")] = "\n".join(lines).removeprefix("## ")
    found = [f"## {parts[one.removeprefix('## ')].strip()}\n" for one in TITLES.values()]
    PAGE.write_text("\n".join([HEAD, *found]), encoding="utf-8")


def _finds(output: Path | None, minutes: float) -> list[Find]:
    if output is not None:
        return msgspec.json.decode(output.read_bytes(), type=Finds).mutants
    return plant(list(range(len(MUTANTS))), MOST, time.monotonic() + minutes * 60, os.cpu_count() or 1)


def _fast_path(figures: differential.Figures) -> tuple[list[str], bool]:
    lines = [
        TITLES["fast-path"],
        "",
        "Each seed was simulated with the fast path and without it, and all that both sides did was compared.",
        "",
        "| | |",
        "|---|---:|",
        f"| seeds, each simulated twice | {figures.seeds:,} |",
        f"| seeds in which the sides differ | {len(figures.different)} |",
        f"| first attempts that took the fast path | {figures.taken:,} |",
        f"| requests at services | {figures.requests:,} |",
        f"| effects at services | {figures.effects:,} |",
        f"| records, byte for byte | {figures.records:,} |",
        "",
    ]
    lines += [f"Different: `make differential SEED={one.seed}`" for one in figures.different]
    lines += [
        "Bugs that were planted in the fast path only:",
        "",
        "| bug | first seed that differs | first difference |",
    ]
    lines += ["|---|---:|---|"]
    missed = False
    for mutant in FAST_PATH:
        found = differential.find(mutant, range(MOST_COMPARED))
        missed |= found is None
        seed = f"{found.seed:,}" if found else f"none of {MOST_COMPARED:,}"
        where = found.differences[0].part if found and found.differences else found.violation if found else ""
        lines.append(f"| {mutant.breaks} | {seed} | {_general(where)} |")
    return lines, bool(figures.different) or missed


def _general(part: str) -> str:
    """The name of a part without that of its run, service or stream."""
    return part.partition(" of ")[0].partition(" at ")[0]


def _tick(seeds: int, fell: int) -> None:
    if seeds % 1000 == 0:
        print(f"{seeds} seeds, {fell} violations", file=sys.stderr)


def _seeds(seeds: int) -> tuple[list[str], bool]:
    hosted, families, routed = (range(first, first + seeds // 10) for first in (HOSTED, FAMILIES, ROUTED))
    done = campaign.run(range(seeds), hosted, families, routed, tick=_tick)
    reach = done.reach
    lines = [
        TITLES["seeds"],
        "",
        "| | |",
        "|---|---:|",
        f"| seeds | {done.seeds:,} |",
        f"| of these, seeds in which agents call a framework | {len(hosted):,} |",
        f"| of these, seeds in which runs start others | {len(families):,} |",
        f"| of these, seeds in which models have limits and routes | {len(routed):,} |",
        f"| violations of an invariant | {len(done.fallen)} |",
        f"| simulated time, hours | {done.virtual_ms / 3_600_000:,.0f} |",
        f"| points at which a process could be struck | {done.points:,} |",
        f"| faults that struck | {sum(reach.faults.values()):,} |",
        f"| attempts | {reach.records['AttemptStarted']:,} |",
        f"| meetings of a fault with an operation, by fault, state and tool | {len(reach.meetings):,} kinds |",
        f"| expected and never reached | {len(done.holes)} |",
        f"| seeds an hour on {os.cpu_count()} cores | {done.per_hour:,} |",
        "",
    ]
    lines += [f"Never reached: {hole}" for hole in done.holes]
    lines += [f"Broken: invariant {one.invariant}, `make sim SEED={one.seed}`: {one.what}" for one in done.fallen]
    lines += ["How often each kind of fault struck:", "", "| fault | times |", "|---|---:|"]
    kinds: dict[str, int] = {}
    for name, count in reach.faults.items():
        kinds[name.partition(" @ ")[0]] = kinds.get(name.partition(" @ ")[0], 0) + count
    lines += [f"| {kind.replace('_', ' ')} | {count:,} |" for kind, count in sorted(kinds.items(), key=lambda x: -x[1])]
    return lines, bool(done.fallen or done.holes)


def _planted(finds: list[Find]) -> tuple[list[str], bool]:
    caught = [one for one in finds if one.invariant]
    median = statistics.median([one.seeds for one in caught]) if caught else 0
    lines = [
        TITLES["planted"],
        "",
        (
            f"{len(finds)} bugs were planted, one at a time; {len(caught)} were found, "
            f"{len(finds) - len(caught)} missed. The median needed {median:.0f} seeds, the best hidden one "
            f"{max((one.seeds for one in caught), default=0):,}. A find counts only where the product without "
            "the bug passes the same seed. Seeds are counted from the one at which the search for that bug begins: "
            "each kind of plan has a range of its own, and so has a bug that hides."
        ),
        "",
        "| bug | found by | seeds |",
        "|---|---|---:|",
    ]
    for one in finds:
        by = f"{one.invariant}: {INVARIANTS[one.invariant]}" if one.invariant else "missed"
        lines.append(f"| {one.name}: {one.breaks} | {by} | {one.seeds:,} |")
    return lines, len(caught) < len(finds)


if __name__ == "__main__":
    sys.exit(main())
