"""How many of our own functions one step calls: the same on every machine, and these bounds only fall.

Instructions of the processor are counted by `make instructions`. They depend on the build of Python and, for a plain
write, by some percent on how busy the machine is; a call is the dearest thing that Python code does, and does not.
"""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import beforehand
from beforehand import Beforehand
from beforehand.engine.settings import Settings
from beforehand.journal.sqlite import group_commit
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from tests.counts.steps import work

WARM_UP, FEW, MANY = 20, 10, 50
OURS = str(Path(beforehand.__file__).parent) + os.sep
QUIET = Settings(poll_ms=600_000, recover_every_ms=600_000)  # housekeeping goes by the clock


async def calls(desk: Beforehand, kind: str, steps: int) -> Counter[str]:
    """The calls of our functions, by name, in a run of so many steps."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            found[code.co_qualname] += 1

    sys.setprofile(count)
    try:
        await desk.run(work, (kind, steps), run_id=f"counted-{steps}")
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(("kind", "most"), [("plain", 273), ("keyed", 266), ("read", 220)])
def test_what_a_step_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int) -> None:
    monkeypatch.setattr(group_commit, "TICK_S", 60)  # what rides is stored by the next commit, not by the clock

    async def body() -> tuple[Counter[str], Counter[str]]:
        journal = SqliteJournal(tmp_path / "journal.db", parts=Parts(commits="loop"))
        async with Beforehand(journal, agents=[work], settings=QUIET, recover=False) as desk:
            await desk.run(work, (kind, WARM_UP), run_id="warm-up")
            return await calls(desk, kind, FEW), await calls(desk, kind, MANY)

    few, many = asyncio.run(body())
    # What is called now and then, and not by every step, is cut off.
    each = {name: int((many[name] - few[name]) / (MANY - FEW)) for name in many}
    assert 0 < sum(each.values()) <= most, {name: times for name, times in each.items() if times}
