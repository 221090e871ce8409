"""Keep 500 runs alive for an hour, kill their processes, and count their effects outside: `make deep ONLY=soak`.

One worker is never killed: it weighs its memory after a collection, and what it keeps must not grow. The others are
killed with SIGKILL, one after the other, and started again; their runs are taken over. A witness in this process
receives every effect. At the end what is left is driven, and every run is compared with what the witness received. Exit
status 0 when all holds, 1 when not.
"""

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SUBJECT: Final = Path(__file__).parent / "subjects" / "soaking.py"
SAMPLE_S: Final = 2.0
JUDGED_FROM_MINUTES: Final = 5.0
"""A shorter soak says nothing about memory: Python takes its own from the system in the first minutes."""
WARM_UP_SHARE: Final = 1 / 3
KEPT: Final[Mapping[str, str]] = {
    "blocks": "blocks that Python has allocated",
    "objects": "objects that the collector visits",
    "heap_kib": "KiB in use outside Python's arenas, SQLite's included",
}
GROWTH_AT_MOST: Final = 0.05
"""The line through the samples of what is kept may rise by so much over the time that is judged."""
RESIDENT_GROWTH_AT_MOST: Final = 0.15
"""The same for resident memory. It grows with each new peak of live objects, since Python gives an arena back only when
nothing in it is in use; a process that keeps nothing can therefore grow, and less each time."""
END_S: Final = 60.0


@dataclass
class Witness:
    """What arrived from outside the workers: effects by their key, and live runs by process."""

    keyed: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    plain: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    live: dict[int, int] = field(default_factory=dict[int, int])
    weighed: list[tuple[float, dict[str, float]]] = field(default_factory=list[tuple[float, dict[str, float]]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await line_of(reader):
            told: dict[str, Any] = json.loads(line)
            if "live" in told:
                self.live[told["pid"]] = told["live"]
            elif "weighed" in told:
                self.weighed.append((time.monotonic(), told["weighed"]))
            else:
                effects = self.keyed if told["effect"] == "keyed" else self.plain
                effects[told["run"]][told["key"]] += 1
            writer.write(b"%d\n" % told["number"])

    def faults(self, audited: dict[str, Any]) -> list[str]:
        """What the runs and the world disagree about. A service performs each key once, however often it comes."""
        found: list[str] = []
        for keys in self.plain.values():
            found += [f"{key} was sent {times} times" for key, times in keys.items() if times > 1]
        unknown = (self.keyed.keys() | self.plain.keys()) - audited["runs"].keys()
        found += [f"{run} sent a write and is not in the journal" for run in sorted(unknown)]
        for run, status in audited["runs"].items():
            if len(self.keyed[run]) > audited["keyed"]:
                found.append(f"{run} sent {len(self.keyed[run])} keys for {audited['keyed']} effects")
            if status == "completed":
                done = len(self.keyed[run]) + len(self.plain[run])
                if done != audited["keyed"] + audited["plain"]:
                    found.append(f"{run} completed with {done} effects")
            elif status != "suspended" or len(self.keyed[run]) < audited["keyed"]:
                found.append(f"{run} is {status}")  # only its plain write, which comes last, may wait for a person
        return found

    @property
    def effects(self) -> int:
        return sum(len(keys) for seen in (self.keyed, self.plain) for keys in seen.values())

    @property
    def repeated(self) -> int:
        """Keyed effects that came more than once: the service performed each once."""
        return sum(times > 1 for keys in self.keyed.values() for times in keys.values())


@dataclass
class Soak:
    """The workers, of which the first is never killed and weighs its memory."""

    directory: Path
    options: argparse.Namespace
    witness: Witness = field(default_factory=Witness)
    workers: list[asyncio.subprocess.Process] = field(default_factory=list[asyncio.subprocess.Process])
    live: list[int] = field(default_factory=list[int])
    kills: int = 0

    async def run(self) -> dict[str, Any]:
        server = await asyncio.start_unix_server(self.witness.serve, str(self.directory / "witness"))
        async with server:
            share = self.options.runs // self.options.workers
            try:
                others = range(1, self.options.workers)
                self.workers = [await self._start("--weigh", "--runs", str(share))]
                self.workers += [await self._start("--runs", str(share)) for _ in others]
                await self._soak(share)
                for worker in self.workers:
                    worker.send_signal(signal.SIGTERM)
                await asyncio.wait_for(asyncio.gather(*(worker.wait() for worker in self.workers)), END_S)
                begun = -signal.SIGTERM  # one that was started anew a moment before, and had nothing to end
                failed = [worker.returncode for worker in self.workers if worker.returncode not in (0, begun)]
                audited = await self._audit()
            finally:
                await self._end_all()
        return self._figures(audited, failed)

    async def _end_all(self) -> None:
        for worker in self.workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()

    async def _soak(self, share: int) -> None:
        chance = random.Random(self.options.seed)
        start = time.monotonic()
        killed = start
        while (now := time.monotonic()) - start < self.options.minutes * 60:
            await asyncio.sleep(min(SAMPLE_S, self.options.kill_every / 2))
            self.live.append(sum(self.witness.live.get(worker.pid, 0) for worker in self.workers))
            if now - killed >= self.options.kill_every:
                killed, victim = now, chance.randrange(1, len(self.workers))
                self.workers[victim].kill()
                await self.workers[victim].wait()
                self.workers[victim] = await self._start("--runs", str(share))
                self.kills += 1

    async def _start(self, *arguments: str) -> asyncio.subprocess.Process:
        command = [str(SUBJECT), "--directory", str(self.directory), *arguments]
        return await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)

    async def _audit(self) -> dict[str, Any]:
        worker = await self._start("--audit")
        out, _ = await worker.communicate()
        if worker.returncode:
            raise SystemExit("soak-live: what was left could not be driven, see above")
        audited: dict[str, Any] = json.loads(out)
        return audited

    def _figures(self, audited: dict[str, Any], failed: Sequence[int | None]) -> dict[str, Any]:
        statuses: Counter[str] = Counter(audited["runs"].values())
        memory = judged(self.witness.weighed, self.options.minutes)
        faults = [*self.witness.faults(audited), *(f"a worker ended with status {status}" for status in failed)]
        faults += grown(memory)
        return {
            "minutes": self.options.minutes,
            "live_runs": statistics.median(self.live),
            "kills": self.kills,
            "runs": dict(statuses),
            "effects": self.witness.effects,
            "keyed_sent_again": self.witness.repeated,
            "memory": memory,
            "faults": faults,
        }


def judged(samples: Sequence[tuple[float, Mapping[str, float]]], minutes: float) -> dict[str, Any]:
    """The line through the samples of each figure after the warm-up: its middle, and what it rises by.

    What goes along with the number of live runs is taken off before: it ends with them.
    """
    span = samples[-1][0] - samples[0][0] if samples else 0.0
    kept = [one for one in samples if one[0] >= samples[0][0] + span * WARM_UP_SHARE]
    if len(kept) < 2:
        return {"flat": None}
    found: dict[str, Any] = {"minutes": round((kept[-1][0] - kept[0][0]) / 60, 1), "samples": len(kept)}
    for name in kept[0][1]:
        values, middle = [figures[name] for _, figures in kept], statistics.median(figures[name] for _, figures in kept)
        found[name] = round(middle, 1)
        if name != "live":
            live = [figures.get("live", 0) for _, figures in kept]
            slope = statistics.linear_regression(beside([at for at, _ in kept], live), beside(values, live)).slope
            found[f"{name}_growth"] = round(slope * (kept[-1][0] - kept[0][0]) / middle, 4)
    found["flat"] = not grown({**found, "flat": False}) if minutes >= JUDGED_FROM_MINUTES else None
    return found


def beside(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """The values without what goes along with the others."""
    if len(set(others)) == 1:
        return list(values)
    fit = statistics.linear_regression(others, values)
    return [value - fit.slope * other for value, other in zip(values, others, strict=True)]


def grown(memory: Mapping[str, Any]) -> list[str]:
    """What has grown by more than it may; empty where the time was too short to judge."""
    bounds = {**dict.fromkeys(KEPT, GROWTH_AT_MOST), "resident_kib": RESIDENT_GROWTH_AT_MOST}
    says = {**KEPT, "resident_kib": "KiB of resident memory"}
    if memory["flat"] is None:
        return []
    return [
        f"memory: {says[name]} grew by {growth:.1%} while {memory['minutes']:.0f} minutes were judged"
        for name, most in bounds.items()
        if (growth := memory.get(f"{name}_growth", 0.0)) > most
    ]


async def line_of(reader: asyncio.StreamReader) -> bytes:
    """The next line of a worker; empty when it has ended or was killed."""
    try:
        return await reader.readline()
    except ConnectionResetError:
        return b""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak-live", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--runs", type=int, default=500, help="live runs, all workers together")
    parser.add_argument("--workers", type=int, default=3, help="processes; the first is never killed")
    parser.add_argument("--kill-every", type=float, default=20, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the journal is; a temporary directory unless named")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if options.workers < 2:
        parser.error(f"--workers {options.workers}: the first worker is never killed; give at least 2")
    if options.runs < options.workers:
        parser.error(f"--runs {options.runs}: give each of the {options.workers} workers a run")
    if not 0 < options.kill_every < options.minutes * 60:
        parser.error(f"--kill-every {options.kill_every:g}: no kill comes within --minutes {options.minutes:g}")
    if options.directory is not None and not options.directory.is_dir():
        parser.error(f"--directory {options.directory}: it does not exist; name one that does")
    return options


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="beforehand-soak-", dir=options.directory) as directory:
        figures = asyncio.run(Soak(Path(directory), options).run())
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, figure in figures.items():
            print(f"{name:18}{figure}")
    return 1 if figures["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
