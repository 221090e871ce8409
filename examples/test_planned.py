"""The planned trip: its fallback, its own end, and a crash at every boundary."""

from __future__ import annotations

from pathlib import Path

import pytest

from beforehand.testing.world import World
from examples.planned import planned_trip
from examples.trip import Trip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the airline and the hotel keep their books."""
    monkeypatch.setenv("TRIP_WORLD", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("city", ["Lisbon", "Full Lisbon"])
def test_both_are_booked_and_the_mail_leaves_last(world: World, city: str) -> None:
    ran = world.run(planned_trip, Trip("17", "SFO", city, 3))
    assert str(ran.result).startswith("Booked FLIGHT")
    assert ran.effects[-1] == "send_itinerary"
    assert sorted(ran.effects[:-1]) == ["book_flight", "book_hotel"]


def test_a_plan_that_is_called_off_books_no_flight_and_gives_the_hotel_back(world: World) -> None:
    ran = world.run(planned_trip, Trip("17", "SFO", "Lisbon", 0))
    assert ran.result == "Not booked: PlanAborted: step flight: input.nights < 1."
    assert ran.effects == ["book_hotel", "cancel_hotel"]


@pytest.mark.parametrize("trip", [Trip("1", "SFO", "Full Lisbon", 3), Trip("2", "SFO", "Lisbon", 0)])
def test_a_crash_anywhere_changes_nothing(world: World, trip: Trip) -> None:
    world.explore(planned_trip, trip)
