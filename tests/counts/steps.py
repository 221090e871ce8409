"""A program that makes so many steps of one kind, or runs without any, and prints how many SQL statements that took.

Run by the tests beside it, under strace: `python steps.py JOURNAL KIND STEPS`.
"""

import asyncio
import functools
import json
import re
import sqlite3
import sys

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.settings import Settings
from beforehand.journal.sqlite import group_commit

statements: list[str] = []
# What the anchor is made of is read about once a second, beside the steps: no step waits for it.
ANCHOR = re.compile(r"from (?:record|ledger) where id|max\(id\)")


@tool
async def plain(index: int) -> int:
    return index


@tool(idempotency=Key.forever())
async def keyed(index: int) -> int:
    assert current_operation().key
    return index


@tool(effect="read")
async def read(index: int) -> int:
    return index


STEPS = {"plain": plain, "keyed": keyed, "read": read}


@agent()
async def work(_run: Run, job: tuple[str, int]) -> int:
    kind, count = job
    for index in range(count):
        await STEPS[kind](index)
    return count


class Observed(sqlite3.Connection):
    """Reports each statement that it executes.

    SQLite's own trace would call Python while it holds the connection's mutex; another thread that has the interpreter and
    waits for that mutex would then wait for ever.
    """

    def execute(self, sql, *values):
        if ANCHOR.search(sql) is None:
            statements.append(sql)
        return super().execute(sql, *values)


def count_statements() -> None:
    """Every connection made from here on is observed."""
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Observed)


async def main(path: str, kind: str, count: int) -> None:
    quiet = Settings(poll_ms=600_000, recover_every_ms=600_000)  # housekeeping would add to what a slow machine counts
    async with Beforehand(path, agents=[work], settings=quiet) as desk:
        if kind == "run":
            for index in range(count):
                await desk.run(work, ("plain", 0), run_id=f"counted-{index}")
        else:
            await desk.run(work, (kind, count), run_id="counted")


if __name__ == "__main__":
    # Riding records are also stored after a few milliseconds; a slow machine would then count more than a fast one.
    group_commit.TICK_S = 60
    count_statements()
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    sys.stdout.write(json.dumps(statements))
