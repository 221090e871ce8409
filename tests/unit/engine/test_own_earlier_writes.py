"""An earlier write of ours that becomes visible late must not be taken for a later one."""

from datetime import timedelta

import pytest

from beforehand import Ambiguous, DidNotHappen, Happened, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import PreconditionsChanged
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

LAG_S = 30.0


class Shelf:
    """Shows what was put on it after a lag. The first request is answered, the second is lost, later ones arrive."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.requests = 0
        self.things: list[tuple[str, str, float]] = []  # what, whose, and from when on it can be seen

    def put(self, what: str, whose: str) -> None:
        self.requests += 1
        if self.requests == 2:
            raise Ambiguous("no answer")
        self.things.append((what, whose, self.lab.loop.time() + LAG_S))

    def seen(self) -> list[tuple[str, str]]:
        return [(what, whose) for what, whose, since in self.things if since <= self.lab.loop.time()]


WINDOW = {"settle_window": timedelta(seconds=60), "every": timedelta(seconds=5)}


def twice(put):
    """An agent that puts the same thing on the shelf twice, on purpose."""

    @agent(run_id="r-{what}", tools=[put])
    async def desk(run: Run, what: str) -> str:
        await put(what)
        await put(what)
        return "both"

    return desk


def marking(shelf: Shelf):
    """A tool whose verifier looks for the marker that it planted."""

    @tool
    async def put(what: str) -> None:
        shelf.put(what, current_operation().marker)

    @put.verify(**WINDOW)
    async def is_there(operation: Operation[None], what: str) -> Verdict[None]:
        return Happened(None) if (what, operation.marker) in shelf.seen() else DidNotHappen()

    return put


def counting(shelf: Shelf, *, marked: bool = False):
    """A tool that reads how many are there before it sends; its verifier compares, or looks for the marker."""
    put = marking(shelf)

    @put.observe
    async def before(operation: Operation[None], what: str) -> int:
        return sum(thing == what for thing, _ in shelf.seen())

    if marked:
        return put

    @put.verify(**WINDOW)
    async def are_more(operation: Operation[None], what: str) -> Verdict[None]:
        more = sum(thing == what for thing, _ in shelf.seen()) > operation.observed
        return Happened(None) if more else DidNotHappen()

    return put


@virtual
async def test_a_verifier_that_looks_for_the_marker_is_not_deceived(lab: Lab):
    shelf = Shelf(lab)
    desk = twice(marking(shelf))
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "mug") == "both"
    assert [what for what, _, _ in shelf.things] == ["mug", "mug"]
    assert len({whose for _, whose, _ in shelf.things}) == 2, "the same arguments, and a marker for each"
    assert shelf.requests == 3, "the lost one was sent again once it was proven absent"


@virtual
async def test_preconditions_that_an_earlier_write_changes_late_stop_the_next_attempt(lab: Lab):
    shelf = Shelf(lab)
    desk = twice(counting(shelf, marked=True))
    async with lab.app(desk, hold_ms=10**9) as app:
        with pytest.raises(PreconditionsChanged):
            await app.run(desk, "mug")
    assert shelf.requests == 2
    assert lab.of("r-mug", r.Verified)[-1].verdict == "did_not_happen"


@virtual
async def test_a_verifier_that_compares_with_what_was_there_before_is_deceived(lab: Lab):
    """The limit that the pages name: the runtime cannot tell whose effect it is that a handler counts."""
    shelf = Shelf(lab)
    desk = twice(counting(shelf))
    async with lab.app(desk, hold_ms=10**9) as app:
        assert await app.run(desk, "mug") == "both"
    assert [what for what, _, _ in shelf.things] == ["mug"], "the second one never landed, and was taken for done"
