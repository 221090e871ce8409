"""What the programs that die share, and how a test sees them: one journal, the lives on it, and the world outside.

A plan is `[what, journal, point, number]`: one life does `what`, and kills itself with SIGKILL at the n-th time that it
comes by that point. What it did to the world stands in a file beside the journal, and outlives it.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from beforehand import Beforehand, current_operation
from beforehand.agent.agent import Agent
from beforehand.engine.environment import system_environment
from beforehand.journal.record_codec import decode
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.model import records as r
from beforehand.people import Policy
from tests.crash.forks import Forks, serve
from tests.crash.points import Points, WatchedJournal, one_of_each, struck
from tests.draws import pick

# --- the program's side -------------------------------------------------------------------------------------------


def note(effect: object) -> None:
    """The world does it, and notices no second time."""
    with Path(os.environ["EFFECTS"]).open("a") as effects:
        effects.write(f"{effect}\n")
        effects.flush()
        os.fsync(effects.fileno())


def note_once(effect: str) -> None:
    """The world does it once for all requests of one key, which it notes with it."""
    effects, keyed = Path(os.environ["EFFECTS"]), f"{effect} {current_operation().key}"
    if not effects.exists() or keyed not in effects.read_text().splitlines():
        note(keyed)


def serve_desk(
    agents: Sequence[Agent[Any, Any]],
    act: Callable[[Beforehand, str], Awaitable[object]],
    policy: Callable[[str], Policy] | None = None,
    telemetry: Callable[[], Any] = tuple,
) -> None:
    """Live by the plans that come in: `act` on the app, and leave what was heard and which points were reached."""

    async def live(what: str, journal: str, points: Points) -> object:
        environment, rules = replace(system_environment(), crash=points), policy and policy(what)
        watched = WatchedJournal(journal, points)
        async with Beforehand(
            watched, agents=agents, policy=rules, environment=environment, recover=False, telemetry=telemetry()
        ) as app:
            return await act(app, what)

    def child(what: str, journal: str, point: str, number: int) -> None:
        os.environ["EFFECTS"] = f"{journal}.effects"
        points = Points((point, number) if point else None)
        heard = asyncio.run(live(what, journal, points))
        Path(f"{journal}.heard").write_text(json.dumps([heard, points.reached_so_far]))

    serve(child)


# --- the test's side ----------------------------------------------------------------------------------------------


class Case:
    """One journal, the lives on it, and what they did to the world."""

    def __init__(self, lives: Forks, place: Path) -> None:
        self._lives = lives
        self.place = place
        self._journal = place / "desk.db"
        place.mkdir(exist_ok=True)
        for left in place.iterdir():
            left.unlink()

    def live(self, what: str, point: str = "", number: int = 0) -> int:
        """One life; how its process ended (negative: the signal)."""
        return self._lives.live(what, str(self._journal), point, number)

    def says(self, what: str) -> Any:
        """What code receives in one life in which no process dies."""
        assert self.live(what) == 0
        return self._left()[0]

    def points(self) -> list[tuple[str, int]]:
        """Every occurrence of every point that the last life came by."""
        return [(point, number) for point, times in sorted(self._left()[1].items()) for number in range(1, times + 1)]

    def effects(self) -> list[str]:
        """What was done to the world."""
        effects = Path(f"{self._journal}.effects")
        return effects.read_text().splitlines() if effects.exists() else []

    def happened(self) -> list[str]:
        """The same without the keys."""
        return [effect.partition(" bh-")[0] for effect in self.effects()]

    def records(self, run: str) -> list[r.Record]:
        """What is on record about a run."""

        async def read() -> list[r.Record]:
            journal = SqliteJournal(self._journal)
            await journal.open()
            try:
                return [decode(row.body) for row in await journal.read(run)]
            finally:
                await journal.close()

        return asyncio.run(read())

    def kept(self) -> dict[Path, bytes]:
        """What all its files hold."""
        return {path: path.read_bytes() for path in self.place.iterdir()}

    def put_back(self, kept: dict[Path, bytes]) -> None:
        """Let them hold that again, and no other file be there. They stay the same files: no journal is a copy."""
        for path in self.place.iterdir():
            if path not in kept:
                path.unlink()
        for path, content in kept.items():
            path.write_bytes(content)

    def _left(self) -> tuple[Any, dict[str, int]]:
        said, points = json.loads(Path(f"{self._journal}.heard").read_text())
        return said, points


def killed(begin: Callable[[], Case], what: str) -> Iterator[Case]:
    """A case that was killed there, for each point that such a life comes by: at one occurrence, drawn by the date.

    In `make deep` it is for each occurrence.
    """
    case = begin()
    before = case.kept()
    assert case.live(what) == 0
    points = case.points()
    assert len(points) > 1, points
    missed = 0
    for point, number in pick(points, one_of_each(points)):
        case.put_back(before)
        if not struck(case.live(what, point, number), point, number):
            missed += 1
            continue
        print(f"killed at {point} {number}")  # what a failure shows last is where
        yield case
    assert missed <= len(points) // 8, f"{missed} of {len(points)} points were not reached again"
