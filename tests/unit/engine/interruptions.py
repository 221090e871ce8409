"""What tests of messages share: a tool that writes into the world, and a look at what was heard."""

from typing import Any

from beforehand import Key, current_operation, tool
from beforehand.inspect.replay import replay_records
from beforehand.model import records as r
from tests.unit.engine.lab import Lab

STEADY = Key.forever(stores="all")


def writer(lab: Lab, name: str = "book", **clauses: Any) -> Any:
    """A tool that writes what it is given into the world."""

    async def book(city: str) -> str:
        assert current_operation().key
        lab.sent.append(f"{name} {city}")
        return f"{name} {city}"

    book.__name__ = name
    return tool(idempotency=STEADY, **clauses)(book)


def heard(lab: Lab, run: str) -> list[tuple[str, int]]:
    return [(record.step, len(record.messages)) for record in lab.of(run, r.MessageHeard)]


async def agrees(lab: Lab, desk: Any) -> None:
    """A replay of the whole record takes the same way."""
    replayed = await replay_records(await lab.journal.open(), "trip-ann", lab.records("trip-ann"), [desk])
    assert replayed.agrees, replayed
