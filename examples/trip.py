"""A trip: a flight and a hotel are booked together, and undone together where one of them cannot be had.

    beforehand run examples/trip.py:book_trip '{"id": "17", "origin": "SFO", "city": "Lisbon", "nights": 3}'
    beforehand show trip-17
    beforehand undo trip-17 --dry-run

The airline and the hotel are files in a directory (`TRIP_WORLD`, else `./trip-world`), so that what really happened
can be read there. A city that begins with "Full" has no hotel left.
"""

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from beforehand import (
    Key,
    Natural,
    Operation,
    Rejected,
    Run,
    TransactionAborted,
    agent,
    current_operation,
    tool,
)


@dataclass
class Trip:
    id: str
    origin: str
    city: str
    nights: int


@dataclass
class Booking:
    code: str
    what: str


def _world() -> Path:
    place = Path(os.environ.get("TRIP_WORLD", "trip-world"))
    place.mkdir(parents=True, exist_ok=True)
    return place


def _book(kind: str, key: str, what: str) -> Booking:
    """A booking system that dedupes on the key: one file for each booking."""
    place = _world() / f"{kind}-{key}.json"
    if not place.exists():
        place.write_text(json.dumps({"code": f"{kind.upper()}-{key[-4:]}", "what": what, "status": "booked"}))
    found = json.loads(place.read_text())
    return Booking(found["code"], found["what"])


def _cancel(kind: str, code: str) -> None:
    """Cancelling twice changes nothing."""
    for place in _world().glob(f"{kind}-*.json"):
        found = json.loads(place.read_text())
        if found["code"] == code:
            place.write_text(json.dumps(found | {"status": "cancelled"}))


# A booking is cancelled for good: nothing is written about it afterwards, so a request that lands late undoes nothing.
FOR_GOOD = Natural(within=timedelta(hours=24), settle_window=timedelta(0))


@tool(idempotency=Key.forever(stores="all"))
async def book_flight(origin: str, city: str) -> Booking:
    """Book a seat from `origin` to `city`."""
    return _book("flight", current_operation().key, f"{origin}-{city}")


@book_flight.compensate(restores=True)
@tool(idempotency=FOR_GOOD)
async def cancel_flight(operation: Operation[Booking]) -> None:
    """Give the seat back."""
    _cancel("flight", operation.result.code)


@tool(idempotency=Key.forever(stores="all"))
async def book_hotel(city: str, nights: int) -> Booking:
    """Book a room in `city`."""
    key = current_operation().key
    if city.startswith("Full"):
        raise Rejected("no room left", code="sold_out")
    return _book("hotel", key, f"{nights} nights in {city}")


@book_hotel.compensate(restores=True)
@tool(idempotency=FOR_GOOD)
async def cancel_hotel(operation: Operation[Booking]) -> None:
    """Give the room back."""
    _cancel("hotel", operation.result.code)


@tool(idempotency=Key.forever(stores="all"))
async def send_itinerary(to: str, text: str) -> str:
    """Mail the itinerary. A mail cannot be called back, so it waits for the commit."""
    return _book("mail", current_operation().key, f"{to}: {text}").code


@agent(run_id="trip-{trip.id}", tools=[book_flight, book_hotel, send_itinerary])
async def book_trip(run: Run, trip: Trip) -> str:
    """Book both, or neither."""
    try:
        async with run.transaction("book trip") as booking:
            flight = await book_flight(trip.origin, trip.city)
            try:
                hotel = await book_hotel(trip.city, trip.nights)
            except Rejected:  # proven refused, never merely unknown
                hotel = await book_hotel.options(step="fallback")(f"{trip.city.removeprefix('Full')} nearby", 1)
            text = f"{flight.code}, {hotel.code}"
            mail = await booking.on_commit(send_itinerary, "traveller@example.com", text)
            if trip.nights < 1:
                booking.abort("a trip has a night at least")
    except TransactionAborted as aborted:
        return f"Not booked: {aborted.reason}"
    return f"Booked {text}; mail {mail.result}"
