"""The outside world of the host tests: a file of effects, and where the process kills itself.

The plan of a run is a list of turns, each a list of payments. A model that follows it is scripted: it answers with the
first turn whose payments are not all done.
"""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SHAPES = {
    "one by one": [["a"], ["b"], ["c"]],
    "in parallel": [["a", "b", "c"]],
}
LOST = "a"
DOOMED = "b"


class Scene(NamedTuple):
    """One process of a cell: what it does to the world, and where it dies."""

    witness: Path
    shape: str
    kill: str = ""  # before, after, record, model; empty: it lives
    changed: bool = False  # its model answers otherwise than the process before
    tool: str = (
        "verified"  # verified: a tool of Beforehand; plain: of the host; asked, host asks: needs approval; interrupts
    )
    lost: bool = False  # the first payment lands, and its answer does not arrive
    cancels: bool = False  # a person cancels the run inside the doomed payment
    durable: bool = True

    def effect(self, what: str, key: str = "") -> str:
        """Pay: the effect is a line in the file, on disk when this returns."""
        self._die("before", what)
        with self.witness.open("a") as file:
            file.write(json.dumps({"what": what, "key": key}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._die("after", what)
        if self.lost and what == LOST and [one["what"] for one in effects(self.witness)].count(LOST) == 1:
            raise ConnectionError("the connection broke before the answer came")
        return f"paid {what}"

    def find(self, key: str) -> str | None:
        """The payment with this key, if it landed."""
        return next((f"paid {one['what']}" for one in effects(self.witness) if one["key"] == key), None)

    def turn(self, ended: Mapping[str, bool]) -> list[tuple[str, str]]:
        """The calls that the model chooses now, as ids and payments; none once everything is paid.

        `ended` are the calls that it was shown the end of: true for those that succeeded. It chooses one that failed
        again, under a new id.
        """
        paid = {call.split("_")[1] for call, succeeded in ended.items() if succeeded or not self.lost}
        wanted = next((left for turn in SHAPES[self.shape] if (left := [one for one in turn if one not in paid])), [])
        if DOOMED in wanted:
            self._die("model", DOOMED)
        if DOOMED in paid:
            self._die("record", DOOMED)
        return [(_call(one, ended), f"{one}-again" if self.changed else one) for one in wanted]

    def _die(self, place: str, what: str) -> None:
        if self.kill == place and what == DOOMED:
            os.kill(os.getpid(), signal.SIGKILL)


def _call(what: str, ended: Mapping[str, bool]) -> str:
    tried = sum(call.split("_")[1] == what for call in ended)
    return f"call_{what}_{tried}" if tried else f"call_{what}"


def effects(witness: Path) -> list[dict[str, str]]:
    """What landed, in order."""
    return [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []
