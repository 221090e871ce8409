"""The trip, tested as its users would: what it does, and a crash at every boundary."""

from __future__ import annotations

from pathlib import Path

import pytest

from beforehand import Rejected
from beforehand.testing.world import World
from examples.trip import Trip, book_hotel, book_trip, send_itinerary


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the airline and the hotel keep their books."""
    monkeypatch.setenv("TRIP_WORLD", str(tmp_path))
    return tmp_path


def test_everything_is_booked_and_the_mail_leaves_last(world: World) -> None:
    ran = world.run(book_trip, Trip("17", "SFO", "Lisbon", 3))
    assert ran.effects == ["book_flight", "book_hotel", "send_itinerary"]


def test_without_any_room_the_flight_is_given_back(world: World) -> None:
    world.stub(book_hotel, raises=Rejected("no room left"))
    ran = world.run(book_trip, Trip("17", "SFO", "Full Lisbon", 3))
    assert ran.effects == ["book_flight", "cancel_flight"]
    assert str(ran.result).startswith("Not booked")


@pytest.mark.parametrize("trip", [Trip("1", "SFO", "Lisbon", 3), Trip("2", "SFO", "Full Lisbon", 0)])
def test_a_crash_anywhere_changes_nothing(world: World, trip: Trip) -> None:
    world.explore(book_trip, trip)


def test_a_mail_that_is_refused_turns_everything_back(world: World) -> None:
    world.stub(send_itinerary, raises=Rejected("no such mailbox"))
    ran = world.run(book_trip, Trip("17", "SFO", "Lisbon", 3))
    assert ran.effects == ["book_flight", "book_hotel", "cancel_hotel", "cancel_flight"]
