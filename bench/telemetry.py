"""Measure steps that are traced with OpenTelemetry beside steps that are not, and beside the SDK's own part.

`make bench-telemetry`. Figures are processor time of the whole process, with the thread that exports; the journals are
in memory where the system has tmpfs. Short blocks of each kind take turns in one process, in an order that differs in
every round, and quotients are medians over rounds, so other work on the machine matters little. Housekeeping, which
goes by the clock, is off. The SDK exports into memory. Its own part is measured by tools that make one span each with
the attributes of ours, in an app without telemetry. Exit status 0 when the goal is met, 1 when it is missed.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Final

from disk import MEMORY
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings
from beforehand.telemetry import OpenTelemetry

ON_TO_OFF: Final = 0.9
STEPS: Final = 1_000
"""The steps of one block."""
EXPORTED_S: Final = 1.0
"""The time after which the records of a block have been read and its spans exported. The process is idle meanwhile."""
QUIET: Final = Settings(poll_ms=600_000, recover_every_ms=600_000)
CASES: Final = {
    "plain write": ("plain", 1),
    "keyed write": ("keyed", 1),
    "read": ("read", 1),
    "100 runs": ("plain", 100),
}
BLOCKS: Final = {"off": "without", "sdk": "a span of the SDK in each tool", "on": "traced", "none": "traced, share 0"}

EXPORTER: Final = InMemorySpanExporter()
PROVIDER: Final = TracerProvider(shutdown_on_exit=False)
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
TRACER: Final = PROVIDER.get_tracer("bench")


def measured(*, spans: bool) -> None:
    """What each tool does: nothing, or one span as the follower would make it."""
    if spans:
        current = current_operation()
        span = TRACER.start_span(f"execute_tool {current.tool}", start_time=time.time_ns())
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": current.tool,
                "gen_ai.tool.call.id": current.id,
                "beforehand.run": current.run,
                "beforehand.step": current.step,
                "beforehand.attempt": current.attempt,
                "beforehand.attempt.end": "returned",
            }
        )
        span.end(time.time_ns())


@tool
async def plain(*, spans: bool) -> None:
    measured(spans=spans)


@tool(idempotency=Key.forever())
async def keyed(*, spans: bool) -> None:
    assert current_operation().key
    measured(spans=spans)


@tool(effect="read")
async def read(*, spans: bool) -> None:
    measured(spans=spans)


TOOLS: Final = {"plain": plain, "keyed": keyed, "read": read}


@agent(tools=list(TOOLS.values()), program="bench")
async def work(_run: Run, job: tuple[str, int, bool]) -> None:
    name, count, spans = job
    for _ in range(count):
        await TOOLS[name](spans=spans)


async def block(app: Beforehand, kind: str, case: tuple[str, int], number: int) -> float:
    """The processor time of a step in microseconds, until its span is exported."""
    name, runs = case
    EXPORTER.clear()
    gc.collect()
    job = (name, STEPS // runs, kind == "sdk")
    began = time.process_time()
    await asyncio.gather(*(app.run(work, job, run_id=f"{name}-{runs}-{kind}-{number}-{at}") for at in range(runs)))
    await asyncio.sleep(EXPORTED_S)
    assert len(EXPORTER.get_finished_spans()) == {"on": STEPS + runs, "sdk": STEPS}.get(kind, 0)
    return (time.process_time() - began) / STEPS * 1e6


async def compare(apps: Mapping[str, Beforehand], case: tuple[str, int], rounds: int) -> dict[str, tuple[float, float]]:
    """The time of a step in each kind of block, and how fast it is to one without: medians over rounds."""
    taken: dict[str, list[float]] = {kind: [] for kind in BLOCKS}
    for number in range(rounds + 1):
        for kind in Random(number).sample(list(BLOCKS), len(BLOCKS)):
            taken[kind].append(await block(apps[kind], kind, case, number))
    off = taken["off"][1:]  # the first round warms up
    return {
        kind: (statistics.median(times[1:]), statistics.median(map(float.__truediv__, off, times[1:])))
        for kind, times in taken.items()
    }


async def measure(place: Path, rounds: int) -> float:
    """Measure and print all cases; the lowest quotient of steps that are traced."""
    lowest = 1.0
    async with AsyncExitStack() as stack:

        async def opened(name: str, *telemetry: OpenTelemetry) -> Beforehand:
            app = Beforehand(place / f"{name}.db", agents=[work], telemetry=telemetry, settings=QUIET, recover=False)
            return await stack.enter_async_context(app)

        off = await opened("off")
        on = await opened("on", OpenTelemetry(tracer_provider=PROVIDER))
        none = await opened("none", OpenTelemetry(tracer_provider=PROVIDER, sample=0))
        for title, case in CASES.items():
            found = await compare({"off": off, "sdk": off, "on": on, "none": none}, case, rounds)
            for kind, (us, quotient) in found.items():
                print(f"{title:12} {BLOCKS[kind]:32} {us:6.0f} us a step  {quotient:5.2f}", flush=True)
            lowest = min(lowest, found["on"][1])
    return lowest


def main() -> int:
    """Measure, print, and compare with the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beforehand-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        lowest = asyncio.run(measure(Path(place), given.rounds))
    print(f"traced, to without: {lowest:.2f} at the lowest (at least {ON_TO_OFF})")
    return 0 if lowest >= ON_TO_OFF else 1


if __name__ == "__main__":
    sys.exit(main())
