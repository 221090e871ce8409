"""Planted cases: known-bad questions among the real ones, which show whether reviewers check. They never send anything.

A planted case is a run without an agent: its name belongs to the system, so no code drives it, and the engine applies
no command to it. The first answer about it ends it (`seeding.end_answered`). To the reviewer it looks like any other
case, and is disclosed after the answer.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from beforehand.model import records as r
from beforehand.model.outcome import Basis
from beforehand.model.run_history import RunHistory

RULE: Final = "it was planted"


class SeededCase(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A call that no reviewer should let through, and `why`, which is shown afterwards.

    `run` names the run under which it is shown; empty: a name like that of another run. `confidence` and `thought` are
    what a model would have said about it, and `seen` what it would have read: empty, what one read for a real question.
    `title` is its title where calls of the tool have one and the code of the tool is not at hand.
    """

    tool: str
    arguments: dict[str, object]
    why: str
    run: str = ""
    confidence: float | None = None
    thought: str = ""
    seen: str = ""
    title: str = ""


class SeededCaseEnd(msgspec.Struct, frozen=True):
    """How a planted case ended, as the result of its run. `withdrawn`: it was never answered."""

    end: Literal["caught", "missed", "withdrawn"]
    by: str
    why: str


def ending(history: RunHistory, word: r.Record | None, by: str, at: int, up: int) -> list[r.Record]:
    """The records that end a planted run after a person's decision (`word`) about it; None: it is withdrawn."""
    assert history.lifecycle.started is not None, history.run
    why = msgspec.json.decode(history.lifecycle.started.input, type=SeededCase).why
    missed = isinstance(word, r.ApprovalGranted)
    end = SeededCaseEnd("withdrawn" if word is None else "missed" if missed else "caught", by, why)
    settled = [
        r.OperationSettled(step=one.step, status="cancelled", basis=Basis("rule"), rule=RULE, reason=why, at=at, up=up)
        for one in history.operations.values()
        if not one.final
    ]
    return [*settled, r.RunCompleted(result=r.Raw(msgspec.json.encode(end)), at=at, up=up)]


def ending_text(ended: SeededCaseEnd) -> str:
    """The text shown to the person who answered."""
    end = "you caught it" if ended.end == "caught" else "you let it through"
    return f"This one was planted, and {end}: {ended.why}. Nothing was sent."
