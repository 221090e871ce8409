"""Where the code of an agent is: a note that may be lost, and keeps no app from opening."""

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.control.code_location import code_of, note_code, noted_code, noted_programs
from beforehand.journal.cells import read_hint
from beforehand.journal.port import HintRequest
from beforehand.journal.sqlite.journal import SqliteJournal


@agent(run_id="r-{given}")
async def main(run: Run, given: str) -> str:
    return given


@agent(run_id="other-{given}", name="main", program="other")
async def other(run: Run, given: str) -> str:
    return given


REFUSES = "create trigger full before insert on cell begin select raise(abort, 'database or disk is full'); end"


@pytest.mark.parametrize("damage", [REFUSES, "drop table cell"])
def test_a_note_that_cannot_be_stored_is_lost_and_the_app_opens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
):
    caplog.set_level(logging.DEBUG, "beforehand")
    asyncio.run(open_damaged(tmp_path / "desk.db", damage))
    (said,) = [line for line in caplog.records if "where the code of the agents is" in line.getMessage()]
    assert said.levelno == logging.DEBUG


async def open_damaged(path: Path, damage: str) -> None:
    async with Beforehand(path):
        pass
    database = sqlite3.connect(path)
    database.execute(damage)
    database.commit()
    database.close()
    if "drop" in damage:  # all of what an app notes is gone; only the note on the code is made here
        journal = SqliteJournal(path)
        await journal.open()
        await note_code(journal, [main])
        await journal.close()
    else:
        async with Beforehand(path, agents=[main]) as app:
            assert await app.run(main, "1") == "1"


def test_a_note_that_cannot_be_read_is_written_again(tmp_path: Path):
    asyncio.run(a_note_that_cannot_be_read_is_written_again(tmp_path))


async def a_note_that_cannot_be_read_is_written_again(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "desk.db")
    await journal.open()
    for damaged in (b"not json", b'{"target":"a.py:main","directory":"/"}', b"[1]"):
        assert await journal.commit(HintRequest("target/main", damaged, await read_hint(journal, "target/main")))
        assert await noted_code(journal, "main", main.program) is None
        await note_code(journal, [main])
        assert await noted_code(journal, "main", main.program) == code_of(main)
    await journal.close()


def test_programs_that_open_a_journal_at_once_are_all_noted(tmp_path: Path):
    asyncio.run(programs_that_open_a_journal_at_once_are_all_noted(tmp_path))


async def programs_that_open_a_journal_at_once_are_all_noted(tmp_path: Path) -> None:
    journals = [SqliteJournal(tmp_path / "desk.db") for _ in range(2)]
    for journal in journals:
        await journal.open()
    await asyncio.gather(*(note_code(journal, [code]) for journal, code in zip(journals, (main, other), strict=True)))
    assert {one.program for one in await noted_programs(journals[0], "main")} == {main.program, "other"}
    for journal in journals:
        await journal.close()
