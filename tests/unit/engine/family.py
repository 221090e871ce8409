"""Agents that start each other: a trip that books its parts by child runs."""

from typing import Any

from beforehand import Run, agent, current_operation, tool
from tests.unit.engine.interruptions import STEADY
from tests.unit.engine.lab import Lab

CHILD = "trip-ann~booking.1"


class Family:
    """A parent and the agent that it starts. `parent` and `child` are what their code does with the tool."""

    def __init__(self, lab: Lab, *, code: Any = None, child: Any = None, **options: Any) -> None:
        keys = dict[str, str]()

        @tool(idempotency=STEADY)
        async def book(city: str) -> str:
            key = current_operation().key
            if key not in keys:  # the outside system honors the key
                keys[key] = f"book {city}"
                lab.sent.append(keys[key])
            return keys[key]

        self.book = book

        @agent(name="booking", tools=[book])
        async def booking(run: Run, what: str) -> str:
            return await (child or _book)(run, what, book)

        self.child = booking

        @agent(name="trip", run_id="trip-{name}", tools=[book], **options)
        async def trip(run: Run, name: str) -> str:
            return await (code or _start_and_join)(run, name, booking)

        self.parent = trip

    @property
    def agents(self) -> tuple[Any, Any]:
        return self.parent, self.child


async def _book(run: Run, what: str, book: Any) -> str:
    return str(await book(what))


async def _start_and_join(run: Run, name: str, booking: Any) -> str:
    hotel = await run.start(booking, "hotel")
    return f"{name}: {await run.join(hotel)}"
