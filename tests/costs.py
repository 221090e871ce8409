"""The processor time that the tests of each directory take, theirs and their processes', in multiples of a loop.

Seconds differ from machine to machine, and on one machine from minute to minute. So every process that runs tests also
times one loop of Python, again and again between tests, and the time of a directory is given in multiples of that loop.
"""

import contextlib
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

LOOP = 200_000
EVERY_S = 5.0
"""Processor seconds of tests between two timings of the loop, which takes a hundredth of a second."""
ROOMS = ("unit",)
"""Directories whose own directories are counted one by one."""


def processor_seconds() -> float:
    """Of this process, of all that it has started and waited for, and of what it has started and still runs."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + sum(map(_seconds, _running()))


def _running() -> Iterator[str]:
    """The ids of the descendants of this process."""
    left = ["self"]
    while left:
        for children in Path(f"/proc/{left.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended since
                found = children.read_text().split()
                left += found
                yield from found


def _seconds(process: str) -> float:
    """The processor time of a running process and of those that it has waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended since
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def loop_seconds() -> float:
    """The processor time of one calibration loop: attribute, integer and dictionary work, as in most Python."""
    begun = time.process_time()
    table: dict[int, int] = {}
    for number in range(LOOP):
        table[number & 255] = table.get(number & 127, 0) + number
    return time.process_time() - begun


class Costs:
    """Adds up what each test takes. Under pytest-xdist the workers count, and send their sums when they end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.tests: defaultdict[str, int] = defaultdict(int)
        self.loops: list[float] = []
        self.timed_at = float("-inf")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        begun = processor_seconds()
        if begun - self.timed_at > EVERY_S:
            self.loops.append(loop_seconds())
            self.timed_at = begun = processor_seconds()
        try:
            return (yield)
        finally:
            if not item.get_closest_marker("drawn"):
                directory = directory_of(item.nodeid)
                self.seconds[directory] += processor_seconds() - begun
                self.tests[directory] += 1

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["costs"] = [dict(self.seconds), dict(self.tests), self.loops]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        seconds, tests, loops = getattr(node, "workeroutput", {}).get("costs", ({}, {}, []))
        for directory, spent in seconds.items():
            self.seconds[directory] += spent
            self.tests[directory] += tests[directory]
        self.loops += loops

    def pytest_unconfigure(self) -> None:
        path: Path | None = self.config.getoption("--costs-file")
        if path is not None and self.loops and not hasattr(self.config, "workerinput"):
            loop = statistics.median(self.loops)
            spent = {
                name: {"tests": self.tests[name], "seconds": round(seconds, 2), "loops": round(seconds / loop)}
                for name, seconds in sorted(self.seconds.items(), key=lambda pair: -pair[1])
            }
            path.write_text(json.dumps({"loop_seconds": loop, "directories": spent}, indent=1) + "\n", encoding="utf-8")


def directory_of(nodeid: str) -> str:
    """The directory in which a test is counted: `cli`, `unit/engine`, or `examples`."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    parts = parts[1:] if parts[:1] == ["tests"] else parts[:1]
    return "/".join(parts[: 2 if parts[:1] == [*ROOMS] else 1]) or "."
