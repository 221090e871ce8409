"""A real process whose agent code catches everything: its other run ends, and so does the process."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio
import sys
from datetime import timedelta

from beforehand import Beforehand, Run, agent, tool
from beforehand.engine.settings import Settings
from beforehand.errors import RunSuspended


@tool
async def send(to: str) -> str:
    return to


@agent(run_id="bad-{name}", tools=[send])
async def bad(run: Run, name: str) -> None:
    try:
        await run.wait_for("never")
    finally:
        while True:
            try:
                await send(name)
            except BaseException:
                pass


@agent(run_id="good-{name}", tools=[send])
async def good(run: Run, name: str) -> str:
    await run.sleep(timedelta(milliseconds=300))
    return await send(name)


async def main() -> None:
    async with Beforehand("desk.db", agents=[bad, good], settings=Settings(grace_ms=500)) as app:
        other = app.start(good, "bob")
        try:
            await app.run(bad, "ann")
        except RunSuspended:
            print("suspended")
        print(await other.result(), flush=True)


def blocking() -> None:
    with Beforehand("desk.db", agents=[bad, good], settings=Settings(grace_ms=500)) as app:
        try:
            app.run(bad, "ann")
        except RunSuspended:
            print("suspended")
        print(app.run(good, "bob"), flush=True)


if sys.argv[1] == "async":
    asyncio.run(main())
else:
    blocking()
"""


@pytest.mark.parametrize("face", ["async", "blocking"])
def test_a_process_ends_though_its_code_catches_everything(tmp_path: Path, face: str):
    program = tmp_path / "desk.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-P", str(program), face],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["suspended", "bob"]), ended.stderr
    assert f"{program}:" in ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
