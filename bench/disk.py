"""The disk that the benchmarks write to: a modelled one where possible, else the real one.

A shared machine's disk changes its speed from one second to the next, which drowns what we want to see.
The modelled disk keeps the data in memory (tmpfs) and makes every fsync and fdatasync take a fixed time, by a
library of a few lines that is preloaded into each subject. What a subject waits for is then the same in every
round, and ratios between subjects repeat.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEMORY = Path("/dev/shm")
DELAY_VARIABLE = "BENCH_SYNC_MICROSECONDS"

# Each thread lowers its timer slack once: the default of 50 us would be a third of the delay that we model.
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

typedef int (*sync_call)(int);
static __thread int prepared;
static long delay_us;

__attribute__((constructor)) static void read_delay(void) {
    const char *text = getenv("BENCH_SYNC_MICROSECONDS");
    delay_us = text ? atol(text) : 0;
}

static void take_time(void) {
    if (delay_us <= 0) return;
    if (!prepared) prepared = prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0) + 1;
    struct timespec pause = {delay_us / 1000000, (delay_us % 1000000) * 1000};
    nanosleep(&pause, NULL);
}

int fsync(int file) {
    take_time();
    return ((sync_call)dlsym(RTLD_NEXT, "fsync"))(file);
}

int fdatasync(int file) {
    take_time();
    return ((sync_call)dlsym(RTLD_NEXT, "fdatasync"))(file);
}
"""


@dataclass(frozen=True)
class Disk:
    """Where the subjects of one benchmark keep their data, and the environment that they run under."""

    root: Path
    preload: Path | None
    sync_us: int
    description: str

    def environment(self, *, delayed: bool = True) -> dict[str, str]:
        """The environment of a subject; not `delayed` when it only prepares data and nothing is timed."""
        if self.preload is None:
            return dict(os.environ)
        delay = str(self.sync_us if delayed else 0)
        return {**os.environ, "LD_PRELOAD": str(self.preload), DELAY_VARIABLE: delay}

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A fresh directory for one case, removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="case-", dir=self.root) as name:
            yield Path(name)


@contextmanager
def open_disk(sync_us: int) -> Iterator[Disk]:
    """A disk whose every sync takes `sync_us` microseconds longer; the real disk where that cannot be had.

    Zero asks for the real disk.
    """
    obstacle = _obstacle(sync_us)
    with tempfile.TemporaryDirectory(prefix="beforehand-bench-", dir=None if obstacle else MEMORY) as name:
        root = Path(name)
        if obstacle:
            yield Disk(root, None, 0, f"the real disk ({obstacle}), where ratios are noisy")
        else:
            yield Disk(root, _compile(root), sync_us, f"a modelled disk: every sync takes {sync_us} us")


def _obstacle(sync_us: int) -> str | None:
    """Why the disk cannot be modelled here, or None."""
    if sync_us <= 0:
        return "as asked"
    if not sys.platform.startswith("linux") or not MEMORY.is_dir():
        return "modelling needs Linux with tmpfs"
    return None if shutil.which("gcc") else "modelling needs gcc"


def _compile(root: Path) -> Path:
    source, library = root / "slow_sync.c", root / "slow_sync.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
