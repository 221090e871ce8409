"""How a body is stored: its moments as numbers beside it, and every byte of it comes back."""

import asyncio
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from beforehand.journal.port import ClaimRequest, LeaseGranted, NewRun, Row, Worker, Write
from beforehand.journal.run_log import genesis, verify_chain
from beforehand.journal.sqlite.batch import parted
from beforehand.journal.sqlite.journal import SqliteJournal

WITHOUT = [
    b'{"kind":"ContractStored"}',
    b'{"kind":"A","at":1}',
    b'{"kind":"A","up":2,"at":1}',
    b'{"kind":"A","at":01,"up":2}',
    b'{"kind":"A","at":1,"up":02}',
    b'{"kind":"A","at":0,"up":2}',
    b'{"kind":"A","at":-1,"up":2}',
    b'{"kind":"A","at":1,"up":+2}',
    b'{"kind":"A","at":1.0,"up":2}',
    b'{"kind":"A","at":1e3,"up":2}',
    b'{"kind":"A","at":,"up":}',
    b'{"kind":"A","at":1,"up":2,"up":3}',
    b'{"kind":"A","at":1,"up":2}}',
    b'{"kind":"A","at":1,"up":2',
    b'{"kind":"A","at":1,"up":2,"note":"later"}',
    b'{"kind":"A","at":1,"up":"\xd9\xa3"}',
    b'{"kind":"A","at":1,"up":9223372036854775808}',
    b'{"kind":"A","note":",\\"at\\":1,\\"up\\":2}"}',
]
WITH = [
    b'{"kind":"A","at":1,"up":2}',
    b'{"kind":"A","note":",\\"at\\":1","at":1795387094361,"up":35845454}',
    b'{"kind":"A","x":{"at":5,"up":6},"at":999999999999999999,"up":1}',
    '{"kind":"A","note":"\u00e4\u4f60","at":3,"up":4}'.encode(),
    b'{"kind":"A","note":"a\x00b","at":3,"up":4}',
    b'{"kind":"A","at":3,"up":4,"at":1,"up":2}',
]


@pytest.mark.parametrize("body", WITH)
def test_moments_at_the_end_are_stored_as_numbers(body: bytes):
    content, at, up = parted(body)
    assert content + b',"at":%d,"up":%d}' % (at, up) == body
    assert len(content) < len(body)


@pytest.mark.parametrize("body", WITHOUT)
def test_a_body_that_joining_would_change_is_stored_whole(body: bytes):
    assert parted(body) == (body, None, None)


def test_every_body_comes_back_as_it_was_and_its_chain_holds(tmp_path: Path):
    async def body() -> None:
        journal, namespace, rows = await written(tmp_path / "j.db")
        read = await journal.read("r")
        assert read == rows
        assert verify_chain(read, genesis(namespace, "r")) is None
        await journal.close()

    asyncio.run(body())
    with closing(sqlite3.connect(tmp_path / "j.db")) as shell:
        shown = [body for (body,) in shell.execute("select cast(body as blob) from record order by id")]
        assert shown == [*WITH, *WITHOUT]


@pytest.mark.parametrize("seq", [2, len(WITH) + 1])
@pytest.mark.parametrize("change", ["at = coalesce(at, 0) + 1", "up = coalesce(up, 0) + 1", "content = content || ' '"])
def test_a_changed_column_breaks_the_chain(tmp_path: Path, change: str, seq: int):
    async def body() -> None:
        journal, namespace, _ = await written(tmp_path / "j.db")
        with closing(sqlite3.connect(tmp_path / "j.db")) as shell, shell:
            shell.execute(f"update record set {change} where seq = {seq}")
        assert verify_chain(await journal.read("r"), genesis(namespace, "r")) == seq
        await journal.close()

    asyncio.run(body())


async def written(path: Path) -> tuple[SqliteJournal, str, list[Row]]:
    """A journal with one run that has a row for each of these bodies."""
    journal = SqliteJournal(path)
    namespace = (await journal.open()).namespace
    await journal.beat(Worker("w"), 60_000)
    granted = await journal.commit(ClaimRequest("r", "w", NewRun("agent")))
    assert isinstance(granted, LeaseGranted)
    head, rows = genesis(namespace, "r"), list[Row]()
    for seq, body in enumerate([*WITH, *WITHOUT], 1):
        head = sha256(head + body).digest()
        rows.append(Row(seq, body, head, granted.lease.token))
    await journal.commit(Write(granted.lease, tuple(rows)))
    return journal, namespace, rows
