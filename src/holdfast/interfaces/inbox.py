"""The inbox: everything that waits for a person, read from the listing alone."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from holdfast.interfaces.looking import Looking, Waiting, waits_of

Kind = Literal["approval", "question", "review"]
KINDS: Final[dict[str, Kind]] = {"approval": "approval", "question": "question", "person": "review"}


class Item(msgspec.Struct, frozen=True):
    """One thing that a person is asked. `due_ms`: the wall clock at which it ends by itself, if it does.

    `answers` are the commands that answer it.
    """

    kind: Kind
    item: str
    run: str
    agent: str
    asks: str
    due_ms: int | None
    since_ms: int
    answers: tuple[str, ...]


async def items(looking: Looking) -> list[Item]:
    """What resting runs ask people, the nearest deadline first, then the oldest."""
    found = [
        Item(
            KINDS[wait.kind], f"{row.run}/{wait.step}".rstrip("/"), row.run, row.agent,
            wait.asks.removeprefix(f"{row.run}/{wait.step}: "), wait.due, row.updated_ms, answers_to(row.run, wait),
        )
        async for row in looking.every_run(status="suspended")
        for wait in waits_of(row)
        if wait.kind in KINDS
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.due_ms is None, one.due_ms or 0, one.since_ms, one.item))


def answers_to(run: str, wait: Waiting) -> tuple[str, ...]:
    """The commands that answer what a run waits for, where a person can."""
    name = f"{run}/{wait.step}"
    match wait.kind:
        case "approval":
            return f"holdfast why {name}", f"holdfast answer {name} yes | no --by NAME"
        case "question":
            return (f"holdfast answer {name} VALUE --by NAME",)
        case "person" if wait.step.endswith("/"):
            return f"holdfast show {run}", f"holdfast transaction {name[:-1]} --retry | --accept --by NAME"
        case "person":
            return f"holdfast why {name}", f"holdfast resolve {name} --happened | --did-not-happen [--retry]"
        case _:
            return ()
