"""A process is killed around a call that leaves something pending: no other run sends about the same thing meanwhile."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests import forked

PROGRAM = """
import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from beforehand import Deferred, Beforehand, Key, Once, Pending, Run, RunSuspended, agent, current_operation, tool

SPELLING, RUN, DIES = sys.argv[1:4]
WORLD = Path("world")


def reached(place: str) -> None:
    if place == DIES:
        os.kill(os.getpid(), signal.SIGKILL)


async def follow_up(lead: str, text: str) -> str:
    reached("before")
    key = current_operation().key
    seen = WORLD.read_text().split() if WORLD.exists() else []
    if key not in seen:
        with WORLD.open("a") as world:
            print(key, file=world)
    reached("sent")
    if SPELLING == "deferred":
        raise Deferred("queued", within=timedelta(days=3), key=f"answer-{lead}")
    if SPELLING != "declared":
        current_operation().pending("an answer", within=timedelta(days=3), key=f"answer-{lead}")
    return "sent"


CLAUSES = {
    "deferred": {},
    "plain": {},
    "declared": {"pending": Pending("an answer", about="lead", within=timedelta(days=3))},
    "once": {"once": Once("lead")},
    "reworded": {"once": Once("lead", reworded=True)},
    "claim": {"claim": "lead"},
    "model": {},
}
follow_up = tool(idempotency=Key.forever(), **CLAUSES[SPELLING])(follow_up)


@agent(run_id="sell-{name}", tools=[follow_up])
async def sell(run: Run, name: str) -> str:
    text = f"Just checking in, says {name}"
    if SPELLING in {"model", "deferred"}:
        outcome = await run.call("follow_up", {"lead": "ann", "text": text})
    else:
        outcome = await follow_up.outcome("ann", text)
    reached("told")
    return outcome.status


async def main() -> None:
    async with Beforehand("pending.db", agents=[sell]) as app:
        try:
            print(await app.run(sell, RUN))
        except RunSuspended:
            print("suspended")


asyncio.run(main())
"""
SPELLINGS = ("deferred", "plain", "declared", "once", "reworded", "claim", "model")


def run(directory: Path, spelling: str, name: str, dies: str = "") -> subprocess.CompletedProcess[str]:
    program = directory / "sell.py"
    program.write_text(PROGRAM)
    return forked.run([str(program), spelling, name, dies or "never"], cwd=directory, timeout=120)


def sent(directory: Path) -> int:
    world = directory / "world"
    return len(world.read_text().split()) if world.exists() else 0


@pytest.mark.parametrize("dies", ["told", "sent"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_after_a_kill_another_run_is_told_that_it_is_pending(tmp_path: Path, spelling: str, dies: str):
    killed = run(tmp_path, spelling, "a", dies)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if dies == "sent":  # nothing is known to be pending before the call has ended: its run goes on first
        assert run(tmp_path, spelling, "a").stdout == "suspended\n"
    assert sent(tmp_path) == 1
    other = run(tmp_path, spelling, "b")
    assert other.stdout == "pending\n", other.stdout + other.stderr
    assert sent(tmp_path) == 1
    assert run(tmp_path, spelling, "a").stdout == "suspended\n"
    assert sent(tmp_path) == 1
