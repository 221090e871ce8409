"""The flight, told as it goes: what is missing, guessed, slow, corrected, sold out, and booked after all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from beforehand import Beforehand, RunSuspended
from beforehand.inspect.timeline import TimelineEntry, timeline
from examples import flight

REQUEST = flight.Request("7", "Book me a flight to NYC tomorrow")


@pytest.fixture(autouse=True)
def airline(monkeypatch: pytest.MonkeyPatch) -> flight.Airline:
    """A fresh airline."""
    fresh = flight.Airline()
    monkeypatch.setattr(flight, "AIRLINE", fresh)
    return fresh


async def told(place: Path, *answers: str) -> tuple[str, list[str], list[TimelineEntry]]:
    """The run's result, what it asked, and its story: each time from the start, as a new process would."""
    asked: list[str] = []
    for answer in (*answers, ""):
        async with Beforehand(place, agents=[flight.travel]) as app:
            try:
                result = await app.run(flight.travel, REQUEST)
            except RunSuspended:
                history = await app.service.history("flight-7")
                step = next(one for one in history.steps.questions if one not in history.steps.answers)
                asked.append(history.steps.questions[step].question.text)
                await app.service.answer(f"flight-7/{step}", answer, by="traveller")
                continue
            records = [record async for _, record in app.service.reader.records("flight-7")]
            return result, asked, timeline("flight-7", records).entries
    raise AssertionError(f"still asks: {asked[-1]}")


def test_the_story(tmp_path: Path, airline: flight.Airline) -> None:
    result, asked, story = asyncio.run(told(tmp_path / "flights.db", "LaGuardia", "8am", "9am"))
    assert asked == [
        "JFK: 7am $290, 10am $310. Which one?",
        "LGA: 8am $300, 9am $312. Which one?",
        "The 8am flight just sold out. 9am is available, $12 more. Book it?",
    ]
    assert result == "LGA 9am for $312"
    assert list(airline.sold.values()) == ["LGA 9am"]
    assert airline.searches == 4, "one timed out and was tried again; two cities' fares, and once more when sold out"
    said = {entry.name: (entry.text, {note.label: note.text for note in entry.notes}) for entry in story}
    assert said["weighed:origin"][0] == "infer"
    assert said["weighed:airport"] == ("infer", {"why": "a question costs 1, guessing 0.9"})
    assert len([entry for entry in story if entry.name == "corrected:airport"]) == 1
    _, corrected = said["corrected:airport"]
    assert corrected["unknown now"] == "fares"
    assert "was executed" not in corrected, "to have searched is nothing that has to be undone"


def test_a_word_in_between_corrects_what_was_guessed(tmp_path: Path, airline: flight.Airline) -> None:
    """`beforehand tell flight-7 "I wanted LaGuardia" --fact airport=LGA`, while it asks about flights to JFK."""

    async def interrupted() -> tuple[str, list[str]]:
        async with Beforehand(tmp_path / "flights.db", agents=[flight.travel]) as app:
            try:
                await app.run(flight.travel, REQUEST)
            except RunSuspended:
                await app.service.tell("flight-7", "I wanted LaGuardia", by="traveller", facts={"airport": "LGA"})
        result, asked, _ = await told(tmp_path / "flights.db", "8am", "9am")
        return result, asked

    result, asked = asyncio.run(interrupted())
    assert result == "LGA 9am for $312"
    assert asked == [
        "LGA: 8am $300, 9am $312. Which one?",
        "The 8am flight just sold out. 9am is available, $12 more. Book it?",
    ]
    assert list(airline.sold.values()) == ["LGA 9am"]
