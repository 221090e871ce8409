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

from simulator import campaign, differential
from simulator.failure import INVARIANTS
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.fast_path import FAST_PATH
from simulator.mutations.planting import MOST, Find, plant

FAST = "## The fast path"
PLANTED = "## Planted bugs"
MOST_COMPARED = 300
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
    parser.add_argument(
        "--fast-path-only", action="store_true", help="measure the part about the fast path, and no other"
    )
    given = parser.parse_args()
    if given.fast_path_only:
        return _write_fast_path(range(given.first, given.first + given.seeds))
    done = campaign.run(range(given.first, given.first + given.seeds), tick=_tick)
    if given.seeds_only:
        PAGE.write_text("\n".join([HEAD, *_seeds(done)]) + "\n" + _part(FAST) + _part(PLANTED), encoding="utf-8")
        print(f"wrote {PAGE.name}: {len(done.fallen)} violations")
        return 1 if done.fallen or done.holes else 0
    until = time.monotonic() + given.minutes * 60
    finds = plant(list(range(len(MUTANTS))), MOST, until, os.cpu_count() or 1)
    text = "\n".join([HEAD, *_seeds(done)]) + "\n" + _part(FAST) + "\n".join(_mutants(finds)) + "\n"
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(done.fallen)} violations, {sum(not one.invariant for one in finds)} missed")
    return 1 if done.fallen or done.holes or any(not one.invariant for one in finds) else 0


def _part(title: str) -> str:
    """The part of the page under this title, as it is now."""
    parts = ("\n" + PAGE.read_text(encoding="utf-8")).split("\n## ")
    return next((f"## {part}\n" for part in parts if f"## {part}".startswith(f"{title}\n")), "").rstrip("\n") + "\n\n"


def _write_fast_path(seeds: range) -> int:
    figures = differential.run(seeds, tick=_tick)
    before, mark, after = PAGE.read_text(encoding="utf-8").partition(PLANTED)
    before = before.partition(FAST)[0]
    PAGE.write_text(before + "\n".join(_fast_path(figures)) + "\n" + mark + after, encoding="utf-8")
    print(f"wrote {PAGE.name}: {len(figures.different)} seeds differ")
    return 1 if figures.different else 0


def _fast_path(figures: differential.Figures) -> list[str]:
    lines = [
        FAST,
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
    for mutant in FAST_PATH:
        found = differential.find(mutant, range(MOST_COMPARED))
        seed = f"{found.seed:,}" if found else f"none of {MOST_COMPARED}"
        where = found.differences[0].part if found and found.differences else found.violation if found else ""
        lines.append(f"| {mutant.breaks} | {seed} | {_general(where)} |")
    return [*lines, ""]


def _general(part: str) -> str:
    """The name of a part without that of its run, service or stream."""
    return part.partition(" of ")[0].partition(" at ")[0]


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
