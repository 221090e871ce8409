"""What every test shares: the tiers, one seed that is printed, the time of each directory, a place for a journal.

`make test` runs what is deterministic, each idea once. A test marked `deep` runs in `make deep` alone; one marked `deeper`
runs in both, and `tests.draws.pick` has more cases for it there. A test draws its own numbers from the `seed` fixture, and
Hypothesis derives its examples from the test itself, so a failure repeats when the same command is given again.
`make deep` draws anew each time, and prints the command that repeats a failure.
"""

import fcntl
import gc
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.costs import Costs
from tests.draws import DATE, SEED, Tier

ROOT = Path(__file__).parents[1]
FROZEN_EVERY = 50
IN_MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes. A suite leaves less than half of that behind."""
NOT_REACHED = "not reached: the time of `make deep` was over"

settings.register_profile("steady", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "deep",
    deadline=None,
    database=None,
    print_blob=True,
    max_examples=1_000,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers", "tiers of the suite; scripts/deep.py gives these options")
    group.addoption("--deep", action="store_true", help="more cases, in an order drawn from the seed")
    group.addoption(
        "--until", type=float, default=float("inf"), help="begin no test after this moment (time.monotonic)"
    )
    group.addoption("--progress-file", type=Path, help="append one JSON line as each test begins, and as it ends")
    group.addoption("--costs-file", type=Path, help="write the processor time of each directory, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts a suite in the background like that,
        signal.signal(signal.SIGINT, signal.default_int_handler)  # and each process of the suite would inherit it
    config.addinivalue_line("markers", "deep: runs in `make deep` alone")
    config.addinivalue_line("markers", "deeper: runs in `make test`, and with more cases in `make deep`")
    config.addinivalue_line("markers", "slow: too slow for `make quick`")
    config.addinivalue_line("markers", "drawn: draws by date what it does, so its time is no measure")
    if not config.getoption("--deep"):
        stay_in_memory()
    Tier.deep, Tier.until = config.getoption("--deep"), config.getoption("--until")
    settings.load_profile("deep" if Tier.deep else "steady")
    config.pluginmanager.register(Costs(config), "costs")
    config.pluginmanager.register(Progress(config), "progress-file")


def hold(place: Path) -> bool:
    """Lock a directory until this process ends. False if another suite holds it, or it belongs to another user."""
    try:
        fcntl.flock(os.open(place, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def stay_in_memory() -> None:
    """Let the files of tests lie in memory, where there is room for them: syncs of the disk take a tenth of the suite.

    A process that is killed leaves the same there. `tests/disk` says itself what a power loss leaves, and `make deep`
    runs on the disk. Files of suites that were killed are removed.
    """
    if "TMPDIR" in os.environ or not IN_MEMORY.is_dir():
        return
    for left in IN_MEMORY.glob("bh-*"):
        if hold(left):
            shutil.rmtree(left, ignore_errors=True)
    room = os.statvfs(IN_MEMORY)
    if room.f_bavail * room.f_frsize >= ROOM and not room.f_flag & os.ST_NOEXEC:
        fresh = Path(
            tempfile.mkdtemp(prefix=".bh-", dir=IN_MEMORY)
        )  # short: the path of a socket has at most 107 bytes
        hold(fresh)
        place = fresh.rename(IN_MEMORY / fresh.name[1:])  # now that no other suite takes it for one that was left
        os.environ["TMPDIR"] = tempfile.tempdir = str(place)
        Tier.place = place


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Give the memory back, unless there is a failure to look at: then the next suite does."""
    if exitstatus == 0 and Tier.place is not None:
        shutil.rmtree(Tier.place, ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> list[str]:
    examples = "drawn anew" if config.getoption("--deep") else "derived from each test"
    return [
        f"seed: {SEED} (BEFOREHAND_SEED={SEED} repeats it); Hypothesis examples: {examples}",
        f"planted bugs of the day: drawn by DATE={DATE}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of this tier. One that is named, as `file.py::test`, runs in whatever tier it is."""
    # A fork copies the tables of the memory of its process, so tests that fork their own process come first.
    items.sort(key=lambda item: "tests/world/" not in item.nodeid)
    if config.getoption("--deep"):
        random.Random(SEED).shuffle(items)
    elif not (config.option.markexpr or any("::" in argument for argument in config.args)):
        deep = [item for item in items if item.get_closest_marker("deep")]
        items[:] = [item for item in items if not item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)


def pytest_collection_finish() -> None:
    """Let the collector leave alone what was collected: it lives until the end."""
    gc.collect()
    gc.freeze()
    # The tests are compiled and kept by now. A program that a test writes, and changes within the same second, has to be
    # compiled each time: by its second and its length alone Python tells whether what it kept is still right.
    sys.dont_write_bytecode = True
    # For the pytests that tests start: these plugins take half a second to import, and none of them needs one.
    os.environ["PYTEST_ADDOPTS"] = "-p no:schemathesis -p no:hypothesispytest -p no:anyio"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the whole suite runs in a fresh clone, compile it once: each worker would, for longer than it collects."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not whole or any((ROOT / "tests" / "unit").rglob("__pycache__/*-pytest-*")):
        return
    halves = ["tests/unit"], ["tests", "examples", "--ignore=tests/unit"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    for process in [
        subprocess.Popen([*collect, *half], cwd=ROOT, env=kept, stdout=subprocess.DEVNULL) for half in halves
    ]:
        process.wait()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than cores: while a test waits for a disk, a server or a child, another one runs.

    `-n logical` is for tests that do not wait, as those of `make quick`.
    """
    return (os.cpu_count() or 1) + (0 if config.option.numprocesses == "logical" else 1)


begun = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if next(begun) % FROZEN_EVERY == 0:
        # What earlier tests left is not visited by each later collection. Without this a process that has run thousands
        # of tests spends a second in each, and tests of the product unfreeze what was frozen before.
        gc.collect()
        gc.freeze()
    if time.monotonic() > item.config.getoption("--until"):
        pytest.skip(NOT_REACHED)


class Progress:
    """Writes down which test began and how each ended, so that the time that is over tells what was not reached."""

    def __init__(self, config: pytest.Config) -> None:
        self.path: Path | None = None if hasattr(config, "workerinput") else config.getoption("--progress-file")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write({"test": nodeid, "began": True})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        late = report.skipped and NOT_REACHED in str(report.longrepr)
        if late or report.failed or report.when == "teardown":
            outcome = "not reached" if late else report.outcome
            self._write({"test": report.nodeid, "ended": outcome})

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


@pytest.fixture(scope="session")
def seed() -> int:
    """The number from which a test draws every other; set BEFOREHAND_SEED to try another."""
    return SEED


@pytest.fixture(scope="session")
def deep() -> bool:
    """True in `make deep`, where a test marked `deeper` does more."""
    return Tier.deep


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    """Where a test may create a SQLite journal: a directory of its own, nothing in it yet."""
    return tmp_path / "journal.db"
