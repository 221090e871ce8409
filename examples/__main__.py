"""Run every example and print one line each: `python -m examples [NAME]...`, or `make examples`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from beforehand import Beforehand, RunSuspended
from examples import deploy, flight, planned, shop, trip


def _trip() -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRIP_WORLD"] = place
        with Beforehand(Path(place, "trips.db"), agents=[trip.book_trip]) as app:
            good = app.run(trip.book_trip, trip.Trip("17", "SFO", "Lisbon", 3))
            bad = app.run(trip.book_trip, trip.Trip("18", "SFO", "Lisbon", 0))
        return [good, bad]


def _planned() -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRIP_WORLD"] = place
        with Beforehand(Path(place, "trips.db"), agents=[planned.planned_trip]) as app:
            good = app.run(planned.planned_trip, trip.Trip("17", "SFO", "Full Lisbon", 3))
            bad = app.run(planned.planned_trip, trip.Trip("18", "SFO", "Lisbon", 0))
        return [good, bad]


def _flight() -> list[str]:
    request, lines = flight.Request("7", "Book me a flight to NYC tomorrow"), list[str]()
    with tempfile.TemporaryDirectory() as place, Beforehand(Path(place, "flights.db"), agents=[flight.travel]) as app:
        for step, answer in (("round-1/ask#1", "LaGuardia"), ("round-2/ask#1", "8am"), ("round-4/ask#1", "9am")):
            try:
                app.run(flight.travel, request)
            except RunSuspended:
                app.wait(app.service.answer(f"flight-7/{step}", answer, by="traveller"))
                lines.append(answer)
        return [*lines, app.run(flight.travel, request)]


EXAMPLES: dict[str, Callable[[], list[str]]] = {
    "trip": _trip,
    "planned": _planned,
    "deploy": deploy.tell,
    "flight": _flight,
    "order": shop.tell,
}


def main() -> int:
    """Run those that are named, or all."""
    names = sys.argv[1:] or list(EXAMPLES)
    if unknown := [name for name in names if name not in EXAMPLES]:
        sys.stderr.write(f"no example {', '.join(unknown)}; there are: {', '.join(EXAMPLES)}\n")
        return 2
    for name in names:
        sys.stdout.write(f"{name}: {'; '.join(EXAMPLES[name]())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
