"""A bad night: twelve silent failures among healthy runs, made by the product itself, and what the monitors find.

    python -m examples.night --nights 3 --runs 1000 --seed 1

A night is drawn from a seed: eight days of ten agents in virtual time, on a journal in memory. Healthy runs differ in
what they cost and how long they last, some writes are refused, and some calls lose their answers. In the last hours
twelve of thirteen kinds of failure are planted, none of which raises an error. Precision is the part of the findings
that were planted, recall the part of the planted failures that was found.
"""

import argparse
import asyncio
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import repeat
from typing import Any

from beforehand import Beforehand, DidNotHappen, Happened, Operation, Rejected, Run, Verdict, agent, tool
from beforehand.agent.agent import Agent
from beforehand.control.schedules import declare_schedules
from beforehand.engine.settings import Settings
from beforehand.inspect.monitors.counting import RecordTallies
from beforehand.inspect.monitors.passes import present
from beforehand.inspect.monitors.rules import RULES, MonitorSettings, Rule
from beforehand.journal.memory import MemoryJournal
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from beforehand.testing.clock import EPOCH_MS, run_virtual, simulated_environment, ticks_ms, virtual_loop

DAYS = 8
HOUR_S = 3600
AGENTS = ("refunds", "orders", "search", "invoices", "writer", "reports", "transfers", "receipts", "mails", "desk")
PLANTED_IN: dict[Rule, str] = {
    "no progress": "desk", "unknown outcomes": "refunds", "refusals": "orders", "repetition": "search",
    "missing effect": "invoices", "cost": "writer", "duration": "reports", "verifier says yes": "transfers",
    "unsupported claim": "receipts", "versions": "mails", "schedule": "digest", "queue": "queue nightly",
    "no worker": "mails",
}  # fmt: skip
assert PLANTED_IN.keys() == set(RULES)


@dataclass
class Task:
    """One run: the tokens that it uses, the seconds that it takes, and what becomes of its call."""

    name: str
    tokens: int = 2000
    seconds: float = 2.0
    answer: str = "done"
    looks: int = 1
    sends: bool = True
    claims: str = ""
    waits_h: int = 0
    hangs: bool = False


@dataclass
class Used:
    """What a model says that it used."""

    usage: dict[str, int]
    model: str = "large-1"


@dataclass(frozen=True)
class Night:
    """What was planted, and what was found: by rule and agent."""

    planted: set[tuple[str, str]]
    found: set[tuple[str, str]]
    runs: int


class World:
    """The outside: what landed there. With `always`, its lookup finds everything, whether it landed or not."""

    def __init__(self, rng: random.Random, *, always: bool) -> None:
        self.rng = rng
        self.always = always
        self.landed: set[str] = set()

    def tools(self) -> tuple[Any, ...]:
        """The tools of the agents, over this world."""

        @tool(effect="read", timeout=timedelta(hours=1))
        async def look(name: str, seconds: float) -> str:
            await asyncio.sleep(seconds)
            return name

        @tool
        async def send(name: str, answer: str) -> str:
            if answer == "refused":
                raise Rejected("the service refused it")
            if answer == "lost":
                raise TimeoutError("no answer")
            return name

        @tool
        async def transfer(name: str, answer: str) -> str:
            landed = name in self.landed or answer == "done" or self.always or self.rng.random() < 0.5
            first = name not in self.landed and answer == "lost"
            if landed:
                self.landed.add(name)
            if first:
                raise TimeoutError("no answer")
            return name

        @transfer.verify(settle_window=timedelta(0))
        async def find(operation: Operation[str]) -> Verdict[str]:
            name = str(operation.arguments["name"])
            self.landed |= set() if name in self.landed or not self.always else {name}
            if name in self.landed:
                return Happened(name)
            self.landed.add(name)  # the next attempt lands and is answered
            return DidNotHappen()

        return look, send, transfer


async def model(tokens: int) -> Used:
    """A model: it uses the tokens that it is told to."""
    return Used({"input_tokens": tokens, "output_tokens": 1})


def agents(world: World, version: str = "1") -> dict[str, Agent[Task, Any]]:
    """All agents: the same code, with the tools of this world."""
    look, send, transfer = world.tools()

    def made(name: str) -> Agent[Task, Any]:
        @agent(name=name, run_id="{task.name}", tools=[look, send, transfer], program="night", version=version)
        async def work(run: Run, task: Task) -> dict[str, object]:
            await run.decide(model, task.tokens)
            for _ in range(task.looks):
                await look(task.name, task.seconds)
            if task.hangs:
                await asyncio.sleep(DAYS * 24 * HOUR_S)
            if task.waits_h:
                await run.sleep(timedelta(hours=task.waits_h))
            if task.sends:
                await (transfer if name == "transfers" else send)(task.name, task.answer)
            claim = {"operation": task.claims, "tool": "send", "key": "k", "basis": "returned", "at_ms": 1}
            return claim if task.claims else {"done": task.name}

        return work

    return {name: made(name) for name in AGENTS}


def healthy(rng: random.Random, name: str, run: str) -> Task:
    """A healthy run: its sizes are spread by a factor of two, and now and then the world refuses or loses something."""
    lost = 0.7 if name == "transfers" else 0.002
    chance = rng.random()
    answer = "lost" if chance < lost else "refused" if chance < lost + 0.01 and name != "transfers" else "done"
    spread = partial(rng.lognormvariate, 0, 0.5)
    return Task(run, int(2000 * spread()), 2 * spread(), answer, rng.randint(1, 3))


def planted(rule: Rule, hour: int) -> list[Task]:
    """The runs of one planted failure."""
    name = f"{rule.replace(' ', '-')}-{hour}"
    task = Task(name)
    several = [Task(f"{name}-{number}") for number in range(9)]
    match rule:
        case "no progress":
            task.hangs = True
        case "unknown outcomes" | "refusals":
            for one in several:
                one.answer = "lost" if rule == "unknown outcomes" else "refused"
            return several
        case "repetition":
            task.looks, task.seconds = 40, 0.1
        case "missing effect":
            task.sends = False
        case "cost":
            task.tokens = 150_000
        case "duration":
            task.seconds = 1200
        case "unsupported claim":
            task.claims = "someone-elses-run/send#1"
        case "no worker":
            task.waits_h = 1
        case _:
            return []
    return [task]


def drawn(seed: int, runs: int) -> Night:
    """One night in virtual time."""
    return run_virtual(_night(seed, runs), limit=timedelta(days=DAYS + 1))


async def _night(seed: int, runs: int) -> Night:
    rng, loop = random.Random(seed), virtual_loop()  # noqa: S311 - a drawn night, not a secret
    rules = sorted(rng.sample(RULES, 12))
    world = World(rng, always="verifier says yes" in rules)
    journal = MemoryJournal(lambda: ticks_ms(loop), lambda: EPOCH_MS + ticks_ms(loop))
    hours = DAYS * 24
    begin = sorted((rng.uniform(0, hours - 1), number) for number in range(runs))
    bad = [(hours - 8 + rng.uniform(0, 4), rule) for rule in rules if rule != "versions"]
    bad += [(hours - 6 + half / 2, "versions") for half in range(9) if "versions" in rules]
    settings = Settings(poll_ms=3_600_000, lease_ms=6 * 3_600_000)
    old, new = agents(world), agents(world, "2")
    app = Beforehand(journal, agents=list(old.values()), settings=settings, recover=False,
                   environment=simulated_environment(loop, seed))  # fmt: skip
    other = Beforehand(journal, agents=list(new.values()), settings=settings, recover=False,
                     environment=simulated_environment(loop, seed + 1))  # fmt: skip
    tasks: set[asyncio.Task[object]] = set()

    def start(owner: Beforehand, code: dict[str, Agent[Task, Any]], name: str, task: Task) -> None:
        tasks.add(asyncio.create_task(owner.run(code[name], task)))

    async with app, other:
        reader = app.service.reader
        moments: Iterator[tuple[float, Any]] = iter(sorted([*begin, *bad], key=lambda one: one[0]))
        for hour, what in moments:
            await asyncio.sleep(max(0.0, hour * HOUR_S - loop.time()))
            if isinstance(what, int):
                name = rng.choice(AGENTS)
                start(app, old, name, healthy(rng, name, f"{name}-{what}"))
            elif what == "versions":  # every half an hour one more run, in turn under the new version and the old one
                later = (other, new) if hour % 1 else (app, old)
                start(*later, "mails", healthy(rng, "mails", f"mails-{hour}"))
            elif what == "schedule":
                await declare_schedules(app.engine, {"hourly": Schedule("digest", every_ms=3_600_000)}, {})
            elif what == "queue":
                await app.engine.queues.declare(journal, DeclaredLimits({"nightly": QueueLimits()}))
                await app.submit(old["desk"], Task("waits-for-a-slot"), queue="nightly")
            else:
                for task in planted(what, int(hour)):
                    start(app, old, PLANTED_IN[what], task)
        await asyncio.sleep(hours * HOUR_S - loop.time())
        now = EPOCH_MS + ticks_ms(loop)
        tallies = RecordTallies()
        while not await tallies.count(reader, now, MonitorSettings(), journal):
            pass
        report = await present(reader, now, MonitorSettings())
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    found = {(one.rule, one.agent) for one in report.findings}
    return Night({(rule, PLANTED_IN[rule]) for rule in rules}, found, runs)


def page(nights: list[Night], seeds: range, seconds: float) -> str:
    """The figures of these nights, in Markdown."""
    planted_all, found_all = sum(len(one.planted) for one in nights), sum(len(one.found) for one in nights)
    true = sum(len(one.planted & one.found) for one in nights)
    false = [len(one.found - one.planted) for one in nights]
    lines = [
        "# How well the monitors find silent failures",
        "",
        f"Generated by `make nights`: {len(nights)} nights of {nights[0].runs:,} healthy runs each,",
        f"with the seeds {seeds.start} to {seeds.stop - 1}, in {seconds:.0f} seconds. In each,",
        "twelve silent failures are planted (`examples/night.py`), and the monitors judge with their default bounds.",
        "",
        "| measure | |",
        "|---|---:|",
        f"| planted failures | {planted_all:,} |",
        f"| of them found (recall) | {true / planted_all:.1%} |",
        f"| findings | {found_all:,} |",
        f"| of them planted (precision) | {true / max(1, found_all):.1%} |",
        f"| most false findings in one night | {max(false)} |",
        "",
        "| rule | planted | found | false |",
        "|---|---:|---:|---:|",
    ]
    for rule in RULES:
        there = [{one for one in night.planted if one[0] == rule} for night in nights]
        seen = [{one for one in night.found if one[0] == rule} for night in nights]
        hits = sum(len(one & other) for one, other in zip(there, seen, strict=True))
        wrong = sum(len(other - one) for one, other in zip(there, seen, strict=True))
        lines.append(f"| {rule} | {sum(map(len, there))} | {hits} | {wrong} |")
    lines += ["", "The healthy runs are simpler than those of real agents. Try the rules on a journal of your own:"]
    lines += ["`beforehand monitors dry-run` ([Find silent failures](../how-to/find-silent-failures.md)).", ""]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Draw nights and print the page. Exit status 1: a failure was missed, or a night had over three false findings."""
    parser = argparse.ArgumentParser(description="Draw bad nights, and measure what the monitors find.")
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    seeds, began, nights = range(given.seed, given.seed + given.nights), time.monotonic(), list[Night]()
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for seed, night in zip(seeds, processes.map(drawn, seeds, repeat(given.runs)), strict=True):
            nights.append(night)
            missed, false = sorted(night.planted - night.found), sorted(night.found - night.planted)
            print(f"night {seed}: missed {missed}, false {false}", file=sys.stderr, flush=True)  # noqa: T201 - progress
    print(page(nights, seeds, math.ceil(time.monotonic() - began)))  # noqa: T201 - its result
    return int(any(one.planted - one.found or len(one.found - one.planted) > 3 for one in nights))


if __name__ == "__main__":
    sys.exit(main())
