"""The inbox: everything that waits for a person, read from the listing alone."""

from __future__ import annotations

import msgspec

from holdfast.interfaces.looking import Looking, Waiting, waits_of
from holdfast.model.waits import PEOPLE, answer_with
from holdfast.model.waits import Item as Kind
from holdfast.model.webhooks import AGENT


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
    """What resting runs ask people, the nearest deadline first, then the oldest.

    Notices that nobody took are no questions to a person: `holdfast webhooks` shows them.
    """
    found = [
        Item(
            PEOPLE[wait.kind], f"{row.run}/{wait.step}".rstrip("/"), row.run, row.agent,
            wait.asks.removeprefix(f"{row.run}/{wait.step}: "), wait.due, row.updated_ms, answers_to(row.run, wait),
        )
        async for row in looking.every_run(status="suspended")
        if row.agent != AGENT
        for wait in waits_of(row)
        if wait.kind in PEOPLE
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.due_ms is None, one.due_ms or 0, one.since_ms, one.item))


def answers_to(run: str, wait: Waiting) -> tuple[str, ...]:
    """The commands that show and answer what a run waits for, where a person can."""
    answer = answer_with(run, wait.kind, wait.step)
    if not answer or wait.kind == "question":
        return (answer,) if answer else ()
    look = f"holdfast show {run}" if wait.step.endswith("/") else f"holdfast why {run}/{wait.step}"
    return look, answer
