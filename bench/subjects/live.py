"""Live runs: what a step costs among many of them, what one occupies, and what a run without steps costs.

All runs are begun and make one step; then they wait for each other. From there, the subject measures the memory that
they occupy (with `--memory`, since counting takes time) and the processor time of the steps that all make at once.
"""

import argparse
import asyncio
import gc
import resource
import time
import tracemalloc
from pathlib import Path

from measure import payload, report

from beforehand import Beforehand, Run, agent, tool
from beforehand.engine.settings import Settings


class Gate:
    """Lets all runs go on at once, when each has come here."""

    def __init__(self) -> None:
        self.missing = 0
        self.full = asyncio.Event()
        self.go = asyncio.Event()

    async def wait(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.full.set()
        await self.go.wait()


gate = Gate()


@tool
async def plain(index: int) -> dict[str, object]:
    return payload(index)


@agent()
async def live(_run: Run, job: tuple[int, int]) -> int:
    _, steps = job
    await plain(0)
    await gate.wait()
    for index in range(1, steps + 1):
        await plain(index)
    return steps


@agent()
async def empty(_run: Run, number: int) -> int:
    return number


def quiet(gc_threshold: int = 0) -> Settings:
    """Settings with which nothing looks for runs to recover."""
    return Settings(recover_every_ms=600_000, gc_threshold=gc_threshold)


async def among(path: Path, runs: int, steps: int, gc_threshold: int, *, memory: bool) -> dict[str, float]:
    """Processor time of a step, and memory of a run, among so many live ones."""
    gate.missing = runs
    async with Beforehand(path, agents=[live], settings=quiet(gc_threshold)) as desk:
        gc.collect()
        tracked, resident = len(gc.get_objects()), resident_kib()
        if memory:
            tracemalloc.start()
        handles = [desk.start(live, (number, steps), run_id=f"run-{number}") for number in range(runs)]
        await gate.full.wait()
        await asyncio.sleep(0.1)
        figures = {"resident_kib_per_run": (resident_kib() - resident) / runs}
        if memory:
            gc.collect()
            figures["kib_per_run"] = tracemalloc.get_traced_memory()[0] / runs / 1024
            figures["objects_per_run"] = (len(gc.get_objects()) - tracked) / runs
            tracemalloc.stop()
        start, began = time.process_time(), time.perf_counter()
        gate.go.set()
        await asyncio.gather(*(handle.result() for handle in handles))
        spent, took = time.process_time() - start, time.perf_counter() - began
    return {**figures, "cpu_us_per_step": spent / (runs * steps) * 1e6, "steps_per_s": runs * steps / took}


def resident_kib() -> int:
    """The resident set of this process, KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


async def empties(path: Path, runs: int) -> dict[str, float]:
    """Processor time of a run without steps, one after the other."""
    async with Beforehand(path, agents=[empty], settings=quiet()) as desk:
        await desk.run(empty, -1, run_id="warm-up")
        start, began = time.process_time(), time.perf_counter()
        for number in range(runs):
            await desk.run(empty, number, run_id=f"run-{number}")
        spent, took = time.process_time() - start, time.perf_counter() - began
    return {"cpu_us_per_run": spent / runs * 1e6, "runs_per_s": runs / took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--gc-threshold", type=int, default=0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--empty", action="store_true")
    options = parser.parse_args()
    path = options.directory / "live.db"
    if options.empty:
        report(**asyncio.run(empties(path, options.runs)))
    else:
        threshold, memory = options.gc_threshold, options.memory
        report(**asyncio.run(among(path, options.runs, options.steps, threshold, memory=memory)))


if __name__ == "__main__":
    main()
