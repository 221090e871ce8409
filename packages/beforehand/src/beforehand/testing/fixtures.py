"""Real runs as tests: `beforehand export RUN -o FILE` writes one, and a test replays it.

def test_the_desk_still_does_what_it_did() -> None:
    replay_fixture(desk, "tests/runs/ticket-17.json")
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from beforehand.agent.agent import AnyAgent
from beforehand.errors import ReplayDiverged, UsageError
from beforehand.inspect.export import read_export
from beforehand.inspect.replay import Replayed, replay_records


def replay_fixture(agent: AnyAgent, path: str | Path) -> Replayed:
    """Drive the current code of an agent over an exported run. No tool, handler or model is called.

    Call it from a plain `def` test. If the run had not ended, only its recorded part is compared.
    Raises `ReplayDiverged` with the difference if the code does something else, `UsageError` if the file is
    missing, damaged, of another agent or of a newer version.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", next_step=f"beforehand export RUN -o {path}"
        ) from error
    found = read_export(text, str(path))
    if found.agent != agent.name:
        raise UsageError(
            f"{path} is a run of the agent {found.agent!r}, not of {agent.name!r}",
            next_step=f"replay it with {found.agent}, or export a run of {agent.name}",
        )
    replayed = asyncio.run(replay_records(found.identity, found.run, found.decoded(), [agent]))
    if not replayed.agrees:
        place = "".join(f"\n{label} {text}" for label, text in (("at", replayed.at), ("in", replayed.where)) if text)
        raise ReplayDiverged(
            f"{agent.name} does not do what it did in run {found.run} ({path})\n"
            f"{replayed.difference}{place}\nNothing was called.",
            run=found.run,
            difference=replayed.difference,
            next_step="restore the code; if the change is meant: add a version marker, or export a new run",
        )
    return replayed
