"""What it takes to replay a step: how many of our own functions are called, the same on every machine.

Two runs that differ only in their number of steps are stopped and resumed; what one step costs is the difference of
their counts over the difference of their steps. Functions of other packages are not counted: how many of these are
written in Python differs between versions. A call is the dearest thing that Python code does, so these bounds only
ever go down.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import beforehand
from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings

FEW, MANY = 10, 50
OURS = str(Path(beforehand.__file__).parent) + os.sep
QUIET = Settings(poll_ms=600_000, recover_every_ms=600_000)  # housekeeping would add to what a slow machine counts
first_time: list[bool] = []


@tool(idempotency=Key.forever())
async def keyed(index: int) -> dict[str, int]:
    assert current_operation().key
    return {"index": index}


@tool(effect="read")
async def reading(index: int) -> dict[str, int]:
    return {"index": index}


KINDS = {"keyed": keyed, "reading": reading}


@agent()
async def work(_run: Run, job: tuple[str, int]) -> int:
    kind, count = job
    for index in range(count):
        await KINDS[kind](index)
    if first_time:
        raise RuntimeError("stop here")
    return count


async def calls_of_a_replay(path: Path, kind: str, steps: int) -> Counter[str]:
    """Which of our functions are called, and how often, to resume a run of that many steps, its end included."""
    async with Beforehand(path, agents=[work], settings=QUIET) as desk:
        first_time.append(True)
        with pytest.raises(RuntimeError, match="stop here"):
            await desk.run(work, (kind, steps), run_id="counted")
        first_time.clear()
    calls, count = counter()
    async with Beforehand(path, agents=[work], settings=QUIET) as desk:
        sys.setprofile(count)
        try:
            assert await desk.resume("counted") == steps
        finally:
            sys.setprofile(None)
    return calls


def counter() -> tuple[Counter[str], Callable[[FrameType, str, object], None]]:
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            calls[code.co_qualname] += 1

    return calls, count


@pytest.mark.parametrize(("kind", "most"), [("keyed", 37), ("reading", 22)])
def test_what_a_replayed_step_calls(tmp_path: Path, kind: str, most: int) -> None:
    few = asyncio.run(calls_of_a_replay(tmp_path / "few.db", kind, FEW))
    many = asyncio.run(calls_of_a_replay(tmp_path / "many.db", kind, MANY))
    # What is called now and then, and not by every step, is cut off.
    each = {name: int((many[name] - few[name]) / (MANY - FEW)) for name in many}
    assert 0 < sum(each.values()) <= most, {name: times for name, times in each.items() if times}
