"""The transcript of a run: what it records, line by line, with what reaches the world and what code receives.

Each line begins with the seconds since the start. `=` is a record that is waited for, `+` one that rides with the next
that is, `!` something that happened outside, `<` what code or its caller received. A record shows every field that
differs from its default, so a test that compares transcripts notices another record, another order, another moment,
and another field. What is random or only repeats what stands in the code is left out.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from beforehand.errors import BeforehandError
from beforehand.journal.port import Write
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.testing.clock import EPOCH_MS, ticks_ms
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab

EXPECTED: Final = Path(__file__).parent / "stories"
_LEFT_OUT: Final = {"token", "digest", "contract", "words", "frames"}
_MOMENTS: Final = {"at", "until", "due", "due_ms", "since_ms", "since", "send_by"}
_KINDS_LEFT_OUT: Final = (r.ContractStored, r.RunStarted)


class Transcript:
    """What happens in a laboratory from now on, as lines."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.lines: list[str] = []
        self._began = lab.loop.time()
        journal = lab.journal
        ride = journal.ride

        async def committing(write: Write, commit: Commit) -> None:
            self._rows("=", write)
            await commit(write)

        def riding(write: Write) -> None:
            self._rows("+", write)
            ride(write)

        intercept(journal, Write, committing)
        journal.ride = riding  # type: ignore[method-assign]  # it listens, and hands on

    def note(self, mark: str, what: object) -> None:
        """Write a line."""
        self.lines.append(f"{self.lab.loop.time() - self._began:8.3f} {mark} {what}")

    def _rows(self, mark: str, write: Write) -> None:
        for row in write.rows:
            record = decode(row.body)
            if not isinstance(record, _KINDS_LEFT_OUT):
                stamped = "" if record.at == EPOCH_MS + ticks_ms(self.lab.loop) else " at another time"
                self.note(mark, f"{shown(record)}{stamped}")
        if write.change is not None:
            waits = _value(msgspec.json.decode(write.change.waits))
            self.note("=", f"{write.change.status} {_shown({'due_ms': write.change.due_ms or 0})} waits={waits}")
        for post in write.posts:
            self.note("p", post.stream.partition("/")[0])

    async def tell(self, result: Any) -> str:
        """Await what a caller awaits, and write what came of it."""
        try:
            told = str(await result)
        except (BeforehandError, KeyError, OSError) as error:
            told = f"{type(error).__name__}: {getattr(error, 'message', error)}"
        self.note("<", told)
        return told

    def compare(self, name: str, beside: Path) -> None:
        """Assert that this is the transcript of that name. The new one is written beside, to be read and kept."""
        text = "\n".join(self.lines) + "\n"
        new = beside / f"{name}.txt"
        new.write_text(text, encoding="utf-8")
        expected = (EXPECTED / new.name).read_text(encoding="utf-8")
        assert text.splitlines() == expected.splitlines(), f"{new} is the new transcript: keep it where it is right"


def shown(record: r.Record) -> str:
    """A record on one line."""
    fields = msgspec.json.decode(msgspec.json.encode(record))
    for name in ("kind", "at", "up"):
        fields.pop(name, None)
    return f"{type(record).__struct_config__.tag} {_shown(fields)}".rstrip()


def _shown(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_value(value, name)}" for name, value in fields.items() if name not in _LEFT_OUT)


def _value(value: Any, name: str = "") -> str:
    if name in _MOMENTS and isinstance(value, int) and value >= EPOCH_MS:
        return f"{(value - EPOCH_MS) / 1000} s"
    if isinstance(value, dict):
        return f"({_shown(cast('dict[str, Any]', value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, cast('list[Any]', value)))}]"
    return str(value)


async def bury(lab: Lab, app: Any, driving: asyncio.Future[Any]) -> None:
    """The process of this app dies; its callers wait no more."""
    await lab.bury(app, lab.processes[-1])
    await asyncio.gather(driving, return_exceptions=True)
