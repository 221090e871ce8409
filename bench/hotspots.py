"""Where our own time goes: cProfile over one of our cases.

`python bench/hotspots.py --kind plain --runs 100` prints the functions with the most time of their own;
`--replay` profiles the process that resumes a run which was killed after so many steps. The profiler makes every
call dearer, so read shares, not times. Threads other than the event loop's are not seen, and the imports at the
start are.

Not named profile.py: the standard library's cProfile imports a module of that name.
"""

import argparse
import pstats
import subprocess
import sys

from disk import open_disk
from sampling import SUBJECTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("plain", "riding", "read"), default="plain")
    parser.add_argument("--steps", type=int, help="per run (2000, or 100 when many)")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--top", type=int, default=35)
    parser.add_argument("--by", choices=("tottime", "cumulative"), default="tottime")
    parser.add_argument("--sync-us", type=int, default=150)
    options = parser.parse_args()
    steps = options.steps or (2000 if options.runs == 1 else 100)
    case = ["--kind", options.kind, "--steps", str(steps), "--runs", str(options.runs)]
    with open_disk(options.sync_us) as disk, disk.directory() as directory:
        found = directory / "profile"
        subject = [SUBJECTS / "ours.py", "--directory", directory, *case]
        if options.replay:
            subprocess.run([sys.executable, *subject, "--case", "die"], check=False)
            subject += ["--case", "resume"]
        command = [sys.executable, "-m", "cProfile", "-o", found, *subject]
        if status := subprocess.run(command, env=disk.environment(), check=False).returncode:
            return status
        pstats.Stats(str(found)).strip_dirs().sort_stats(options.by).print_stats(options.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
