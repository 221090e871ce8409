"""Write docs/explanation/proof.md: simulate seeds, plant mutants, and put the figures on the page.

    python -m scripts.proof --seeds 20000 --minutes 18

Nothing on that page is typed in.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

from simulator import campaign
from simulator.failure import INVARIANTS
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.planting import MOST, Find, plant

PLANTED = "## Planted bugs"
PAGE = Path(__file__).parents[1] / "docs/explanation/proof.md"

HEAD = """# Simulator results

`python -m scripts.proof` writes this page. [The simulator](simulator.md) explains the figures.
"""


def main() -> int:
    """Run both and write the page. Exit status 1 where an invariant broke or a mutant was missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many seeds to simulate")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, default=18, help="for the mutants")
    parser.add_argument("--seeds-only", action="store_true", help="leave the part about the mutants as it is")
    given = parser.parse_args()
    done = campaign.run(range(given.first, given.first + given.seeds), tick=_tick)
    if given.seeds_only:
        _, mark, mutants = PAGE.read_text(encoding="utf-8").partition(PLANTED)
        PAGE.write_text("\n".join([HEAD, *_seeds(done)]) + "\n" + mark + mutants, encoding="utf-8")
        print(f"wrote {PAGE.name}: {len(done.fallen)} violations")
        return 1 if done.fallen or done.holes else 0
    until = time.monotonic() + given.minutes * 60
    finds = plant(list(range(len(MUTANTS))), MOST, until, os.cpu_count() or 1)
    PAGE.write_text("\n".join([HEAD, *_seeds(done), *_mutants(finds)]) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(done.fallen)} violations, {sum(not one.invariant for one in finds)} missed")
    return 1 if done.fallen or done.holes or any(not one.invariant for one in finds) else 0


def _tick(seeds: int, fell: int) -> None:
    if seeds % 1000 == 0:
        print(f"{seeds} seeds, {fell} violations", file=sys.stderr)


def _seeds(done: campaign.Campaign) -> list[str]:
    reach = done.reach
    lines = [
        "## Seeds",
        "",
        "| | |",
        "|---|---:|",
        f"| seeds | {done.seeds:,} |",
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
    lines += [f"Broken: invariant {one.invariant}, `make sim SEED={one.seed}`: {one.what}" for one in done.fallen]
    lines += ["How often each kind of fault struck:", "", "| fault | times |", "|---|---:|"]
    kinds: dict[str, int] = {}
    for name, count in reach.faults.items():
        kinds[name.partition(" @ ")[0]] = kinds.get(name.partition(" @ ")[0], 0) + count
    lines += [f"| {kind.replace('_', ' ')} | {count:,} |" for kind, count in sorted(kinds.items(), key=lambda x: -x[1])]
    return [*lines, ""]


def _mutants(finds: list[Find]) -> list[str]:
    caught = [one for one in finds if one.invariant]
    median = statistics.median([one.seeds for one in caught]) if caught else 0
    lines = [
        PLANTED,
        "",
        (
            f"{len(finds)} bugs were planted, one at a time; {len(caught)} were found, "
            f"{len(finds) - len(caught)} missed. The median needed {median:.0f} seeds, the best hidden one "
            f"{max((one.seeds for one in caught), default=0):,}. A find counts only where the product without "
            "the bug passes the same seed."
        ),
        "",
        "| bug | found by | seeds |",
        "|---|---|---:|",
    ]
    for one in finds:
        by = f"{one.invariant}: {INVARIANTS[one.invariant]}" if one.invariant else "missed"
        lines.append(f"| {one.name}: {one.breaks} | {by} | {one.seeds:,} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
