"""A process that is killed while `on_error=` deals with an error: the error stays the same, and each effect happens once."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests import forked

PROGRAM = """
import asyncio, json, os, signal, sys
from pathlib import Path
from beforehand import Beforehand, Key, Rejected, Run, agent, current_operation, tool

place, kill_at = Path(sys.argv[1]), sys.argv[2]
witness = place / "witness"

def at(moment):
    if moment == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def note(what, key):
    with witness.open("a") as out:
        out.write(json.dumps([what, key]) + "\\n")
        out.flush()
        os.fsync(out.fileno())

@tool(idempotency=Key.forever())
async def refund(to: str) -> str:
    note("refund asked", current_operation().key)
    raise Rejected("no account", code="no_account")

@tool(idempotency=Key.forever())
async def apologize(to: str) -> str:
    at("before the effect")
    key = current_operation().key
    if ["sorry", key] not in [json.loads(line) for line in witness.read_text().splitlines()]:
        note("sorry", key)  # the system knows the key
    at("after the effect")
    return f"sorry {to}"

async def say_sorry(run: Run, name: str, error: Exception) -> str:
    at("when the error comes")
    said = f"{error.outcome.code}: {await apologize(name)}"
    at("after the outcome")
    return said

@agent(run_id="desk-{name}", tools=[refund, apologize], on_error=say_sorry)
async def serve(run: Run, name: str) -> str:
    return await refund(name)

async def main():
    async with Beforehand(place / "runs.db", agents=[serve], recover=False) as app:
        print(await app.run(serve, "ann"))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "moment", ["when the error comes", "before the effect", "after the effect", "after the outcome"]
)
def test_what_on_error_does_is_done_once_under_a_kill(moment: str, tmp_path: Path):
    (tmp_path / "desk.py").write_text(PROGRAM)

    def started(kill_at: str) -> subprocess.CompletedProcess[str]:
        return forked.run([str(tmp_path / "desk.py"), str(tmp_path), kill_at])

    assert started(moment).returncode == -signal.SIGKILL
    again = started("never")
    assert (again.returncode, again.stdout) == (0, "no_account: sorry ann\n"), again.stderr
    assert started("when the error comes").stdout == "no_account: sorry ann\n"  # it is complete: no code runs again
    landed = [json.loads(line) for line in (tmp_path / "witness").read_text().splitlines()]
    assert [what for what, _ in landed] == ["refund asked", "sorry"]
