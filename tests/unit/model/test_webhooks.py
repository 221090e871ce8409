"""Endpoints as their notes tell them."""

from __future__ import annotations

from beforehand.model.webhooks import Endpoint, Note, endpoints

ADDED = Note("add", "ops", "ann", url="https://ops.example.com/", secrets=("first",), kinds=("run.stopped",))
OPS = Endpoint("ops", "https://ops.example.com/", ("first",), ("run.stopped",), since=1, turned_on=1)


def after(*notes: Note) -> dict[str, Endpoint]:
    return endpoints(enumerate(notes, 1))


def test_an_endpoint_is_told_what_happens_from_its_note_on():
    assert after(ADDED) == {"ops": OPS}
    assert OPS.open


def test_an_endpoint_that_was_disabled_says_why_until_it_is_enabled():
    ops = after(ADDED, Note("disable", "ops", "ann", why="410 Gone"))["ops"]
    assert (ops.disabled, ops.open, ops.turned_on) == ("410 Gone", False, 1)
    assert after(ADDED, Note("disable", "ops", "ann"))["ops"].disabled == "disabled by ann"
    again = after(ADDED, Note("disable", "ops", "ann"), Note("enable", "ops", "bob"))["ops"]
    assert (again.disabled, again.open, again.since, again.turned_on) == ("", True, 1, 3)


def test_an_endpoint_that_was_removed_is_remembered_and_told_nothing():
    ops = after(ADDED, Note("remove", "ops", "ann"))["ops"]
    assert (ops.removed, ops.open) == (True, False)


def test_a_word_about_an_endpoint_that_never_was_says_nothing():
    assert after(Note("enable", "ops", "ann")) == {}
