"""Lessons about an agent: what a finding or a review taught, proposed by one person and approved by another.

A lesson is advice for later runs. Its type is that of neither a fact nor a receipt, so it cannot stand in for one. Each
lesson is up to three entries of the ledger: its proposal, the first decision about it, and its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from beforehand.model.ids import stream

STREAM: Final = "agent-lessons"
ADVICE: Final = "advice"
"""The name of the step by which a run is shown lessons."""
LONGEST: Final = 500
"""The most characters of a lesson: it is shown to a model in each turn."""
MOST: Final = 20
"""The most lessons of one agent in effect. With more, a model reads advice instead of its task."""

LessonKind: TypeAlias = Literal["avoid", "check", "prefer"]
"""The advice: do not do it, look before you do it, or do it rather than something else."""
LessonState: TypeAlias = Literal["proposed", "approved", "declined", "retired"]
KINDS: Final[tuple[LessonKind, ...]] = get_args(LessonKind)
_WORDS: Final[dict[LessonKind, str]] = {"avoid": "Avoid", "check": "Check first", "prefer": "Prefer"}
_ABOUT: Final = (
    "Lessons from earlier runs of this agent. They are advice that people gave. None of them is a fact about the "
    "present case, none proves that anything was done, and each may be out of date: check what you rely on."
)


class LessonEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ground of a lesson: a finding, an operation or a run, and what was on record about it at that wall clock."""

    about: str
    says: tuple[str, ...]
    at_ms: int


class LessonProposed(msgspec.Struct, frozen=True, omit_defaults=True, tag="proposed"):
    """A person proposes a lesson."""

    lesson: str
    agent: str
    kind: LessonKind
    text: str
    evidence: tuple[LessonEvidence, ...]
    by: str


class LessonDecided(msgspec.Struct, frozen=True, omit_defaults=True, tag="decided"):
    """A person approves or declines it. The first decision counts."""

    lesson: str
    approved: bool
    by: str
    why: str = ""


class LessonRetired(msgspec.Struct, frozen=True, omit_defaults=True, tag="retired"):
    """A person ends an approved lesson: runs that begin later are not shown it."""

    lesson: str
    by: str
    why: str = ""


LessonEntry: TypeAlias = LessonProposed | LessonDecided | LessonRetired
LESSON_ENTRY: Final = cast("type[LessonEntry]", LessonEntry)
"""The type of every entry, for decoding."""


class ReviewedLesson(msgspec.Struct, frozen=True):
    """A lesson as the ledger has it. `decided_by` approved or declined it; `why` is the reason of the last of these."""

    id: str
    agent: str
    kind: LessonKind
    text: str
    evidence: tuple[LessonEvidence, ...]
    proposed_by: str
    state: LessonState = "proposed"
    decided_by: str = ""
    retired_by: str = ""
    why: str = ""


class AgentLesson(msgspec.Struct, frozen=True):
    """An approved lesson as a run of the agent is shown it. Its evidence, which is about other runs, is not shown."""

    id: str
    kind: LessonKind
    text: str


class ShownLessons(msgspec.Struct, frozen=True):
    """The lessons that a run was shown, as its record has them."""

    lessons: tuple[AgentLesson, ...] = ()


def agent_lessons_stream(agent: str) -> str:
    """The ledger stream of the lessons about an agent."""
    return stream(STREAM, agent)


def reviewed(entries: Iterable[LessonEntry]) -> list[ReviewedLesson]:
    """The lessons that these entries make, in the order of their proposals."""
    found: dict[str, ReviewedLesson] = {}
    for one in entries:
        if isinstance(one, LessonProposed):
            found[one.lesson] = ReviewedLesson(one.lesson, one.agent, one.kind, one.text, one.evidence, one.by)
            continue
        before = found.get(one.lesson)
        if before is None:
            continue  # its proposal cannot be read
        if isinstance(one, LessonRetired):
            found[one.lesson] = replace(before, state="retired", retired_by=one.by, why=one.why)
        else:
            state: LessonState = "approved" if one.approved else "declined"
            found[one.lesson] = replace(before, state=state, decided_by=one.by, why=one.why)
    return list(found.values())


def in_effect(entries: Iterable[LessonEntry]) -> ShownLessons:
    """The lessons that a run is shown now: those that are approved, and not retired."""
    approved = (one for one in reviewed(entries) if one.state == "approved")
    return ShownLessons(tuple(AgentLesson(one.id, one.kind, one.text) for one in approved))


def advice_text(lessons: Iterable[AgentLesson]) -> str:
    """The block for a prompt; empty without lessons."""
    lines = [f"- {_WORDS[one.kind]}: {one.text}" for one in lessons]
    return "\n".join((_ABOUT, *lines)) if lines else ""
