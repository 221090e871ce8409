"""Where our own time goes: cProfile over one of our cases, in this process.

`python bench/hotspots.py --kind plain --runs 1` prints the functions with the most time of their own. The
profiler makes every call dearer, so read shares, not times. Threads other than the event loop's are not seen.

Not named profile.py: the standard library's cProfile imports a module of that name.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import subprocess
import sys
from pathlib import Path

from disk import open_disk
from subjects import ours

INSIDE = "BENCH_HOTSPOTS_DIRECTORY"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=tuple(ours.STEPS), default="plain")
    parser.add_argument("--steps", type=int, default=0, help="per run (1000, or 20 when many)")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--top", type=int, default=35)
    parser.add_argument("--by", choices=("tottime", "cumulative"), default="tottime")
    parser.add_argument("--sync-us", type=int, default=150)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        return run_on_disk(options.sync_us)
    steps = options.steps or (1000 if options.runs == 1 else 20)
    profile(Path(os.environ[INSIDE]), options.kind, steps, options.runs).sort_stats(options.by).print_stats(
        options.top
    )
    return 0


def run_on_disk(sync_us: int) -> int:
    """Start this script again under the modelled disk: a library is preloaded when a process starts."""
    with open_disk(sync_us) as disk, disk.directory() as directory:
        environment = {**disk.environment(), INSIDE: str(directory)}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def profile(directory: Path, kind: ours.Kind, steps: int, runs: int) -> pstats.Stats:
    profiler = cProfile.Profile()
    figures = profiler.runcall(asyncio.run, ours.rate(directory / "ours.db", kind, steps, runs))
    print({name: round(value, 1) for name, value in figures.items()})
    return pstats.Stats(profiler).strip_dirs()


if __name__ == "__main__":
    sys.exit(main())
