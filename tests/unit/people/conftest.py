"""Each dossier that these tests make is also made from all records of its run, and must be the same."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from beforehand.inspect.reader import JournalReader, ReadRecord
from beforehand.people import dossier as module
from beforehand.people.loaded_item import LoadedItem


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dossier decodes only the records that it needs; a kind that was forgotten would be missing from it."""
    made, chosen = module.dossier_of, JournalReader.records

    def every(
        reader: JournalReader, run: str, after: int = 0, *_kinds: Any, naming: tuple[str, ...] = ()
    ) -> AsyncIterator[ReadRecord]:
        del naming
        return chosen(reader, run, after)

    async def twice(reader: JournalReader, about: LoadedItem) -> module.Dossier:
        found = await made(reader, about)
        with monkeypatch.context() as patched:
            patched.setattr(JournalReader, "records", every)
            assert await made(reader, about) == found
        return found

    monkeypatch.setattr(module, "dossier_of", twice)
