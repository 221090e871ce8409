"""The outside world of the host tests: a file of effects, and where the process kills itself.

The plan of a run is a list of turns, each a list of payments. A model that follows it is scripted: it answers with the
first turn whose payments are not all done.
"""

import json
import os
import signal
from pathlib import Path
from typing import NamedTuple

SHAPES = {
    "one by one": [["a"], ["b"], ["c"]],
    "in parallel": [["a", "b", "c"]],
}
DOOMED = "b"


class Scene(NamedTuple):
    """One process of a cell: what it does to the world, and where it dies."""

    witness: Path
    shape: str
    kill: str = ""  # before, after, record, model; empty: it lives
    changed: bool = False  # its model answers otherwise than the process before
    tool: str = "verified"  # verified: a tool of Holdfast; plain: a tool of the host; asked: one that needs approval
    durable: bool = True

    def effect(self, what: str, key: str = "") -> str:
        """Pay: the effect is a line in the file, on disk when this returns."""
        self._die("before", what)
        with self.witness.open("a") as file:
            file.write(json.dumps({"what": what, "key": key}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._die("after", what)
        return f"paid {what}"

    def find(self, key: str) -> str | None:
        """The payment with this key, if it landed."""
        return next((f"paid {one['what']}" for one in effects(self.witness) if one["key"] == key), None)

    def turn(self, done: set[str]) -> list[tuple[str, str]]:
        """The calls that the model chooses now, as ids and payments; none once everything is paid."""
        plan = SHAPES[self.shape]
        calls = next((turn for turn in plan if not {f"call_{one}" for one in turn} <= done), [])
        if DOOMED in calls:
            self._die("model", DOOMED)
        if f"call_{DOOMED}" in done:
            self._die("record", DOOMED)
        return [(f"call_{one}", f"{one}-again" if self.changed else one) for one in calls]

    def _die(self, place: str, what: str) -> None:
        if self.kill == place and what == DOOMED:
            os.kill(os.getpid(), signal.SIGKILL)


def effects(witness: Path) -> list[dict[str, str]]:
    """What landed, in order."""
    return [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []
