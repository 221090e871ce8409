"""Lessons about agents: proposed with evidence, decided by another person, retired, and listed (ADR 46)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from beforehand.control.input_checks import checked_by
from beforehand.engine.engine import Engine
from beforehand.errors import UnknownRun, UsageError
from beforehand.inspect.monitors.passes import with_acknowledged
from beforehand.inspect.monitors.rules import MonitorSettings
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Journal, JournalReads, Post
from beforehand.model.lessons import (
    LESSON_ENTRY,
    LONGEST,
    MOST,
    STREAM,
    LessonDecided,
    LessonEvidence,
    LessonProposed,
    LessonRetired,
    ReviewedLesson,
    agent_lessons_stream,
    reviewed,
)
from beforehand.model.names import same_person
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type

_LIST: Final = "beforehand lessons list --all"
_FINDING: Final = re.compile("[0-9a-f]{8}")


async def list_lessons(journal: JournalReads, agent: str = "") -> list[ReviewedLesson]:
    """Every lesson that was ever proposed (about `agent`, where one is named), the oldest first."""
    entries = await journal.entries(agent_lessons_stream(agent) if agent else f"{STREAM}/")
    return reviewed(one for _, one in await readable(journal, entries, LESSON_ENTRY))


async def propose_lesson(engine: Engine, wanted: LessonProposed) -> ReviewedLesson:
    """Propose a lesson under a new id; durable on return. Raises `UsageError`.

    The same words about the same agent, while they are proposed or in effect, are that lesson.
    """
    _check(wanted)
    for one in await list_lessons(engine.journal, wanted.agent):
        if (one.kind, one.text) == (wanted.kind, wanted.text) and one.state in {"proposed", "approved"}:
            return one
    while True:
        name = f"l-{engine.environment.rng.token()[:8]}"
        body = written(replace(wanted, lesson=name), LESSON_ENTRY)
        if (await engine.journal.commit(Post(agent_lessons_stream(wanted.agent), name, body))).fresh:
            return await _named(engine.journal, name)


async def decide_lesson(engine: Engine, lesson: str, *, approved: bool, by: str, why: str = "") -> ReviewedLesson:
    """Approve or decline a proposed lesson. Raises `UsageError`, also for the person who proposed it and approves.

    The first decision counts. The same one again, from the same person, succeeds.
    """
    about = await _named(engine.journal, lesson)
    checked_by(by, "a lesson")
    if about.state == "proposed" and approved:
        await _check_approval(engine.journal, about, by)
    if about.state == "proposed":
        entry = LessonDecided(lesson, approved, by, why)
        post = Post(agent_lessons_stream(about.agent), f"{lesson}/decided", written(entry, LESSON_ENTRY))
        await engine.journal.commit(post)
        about = await _named(engine.journal, lesson)
    if about.state == ("approved" if approved else "declined") and same_person(about.decided_by, by):
        return about
    raise UsageError(
        f"{lesson} was {'declined' if about.state == 'declined' else 'approved'} by {about.decided_by} already"
        + (f", and retired by {about.retired_by}" if about.retired_by else ""),
        known="nothing was changed",
        next_step="propose it again" if approved else to_type("lessons", "retire", lesson),
    )


async def retire_lesson(engine: Engine, lesson: str, *, by: str, why: str = "") -> ReviewedLesson:
    """End an approved lesson for all runs that begin to read lessons later. Raises `UsageError`."""
    about = await _named(engine.journal, lesson)
    checked_by(by, "a lesson")
    if about.state == "approved":
        entry = LessonRetired(lesson, by, why)
        post = Post(agent_lessons_stream(about.agent), f"{lesson}/retired", written(entry, LESSON_ENTRY))
        await engine.journal.commit(post)
        about = await _named(engine.journal, lesson)
    if about.state == "retired" and same_person(about.retired_by, by):
        return about
    raise UsageError(
        f"{lesson} was retired by {about.retired_by} already" if about.retired_by else f"{lesson} is {about.state}",
        known="nothing was changed",
        next_step=to_type("lessons", "decline", lesson) if about.state == "proposed" else _LIST,
    )


# --- evidence --------------------------------------------------------------------------------------------------------


async def evidence_for(
    reader: JournalReader, about: Sequence[str], now_ms: int, settings: MonitorSettings
) -> tuple[str, tuple[LessonEvidence, ...]]:
    """The agent that all of these are about, and what is on record about each. Raises `UsageError`.

    Each is the name of a finding, an operation as RUN/STEP, or a run.
    """
    wanted = any(_FINDING.fullmatch(name) for name in about)
    found_now = (await with_acknowledged(reader, now_ms, settings)).findings if wanted else []
    findings = {one.id: one for one in found_now}
    found: list[LessonEvidence] = []
    agents: dict[str, str] = {}
    for name in about:
        if name in findings:
            finding = findings[name]
            if finding.rule == "queue":
                raise UsageError(
                    f"{name} is about the {finding.agent}, and a lesson is about an agent",
                    known="nothing was stored",
                    next_step="name a run of that queue whose agent has to know: --of RUN",
                )
            agents[name] = finding.agent
            says = (f"{finding.rule}: {finding.what}", *finding.evidence)
        else:
            history, says = await _on_record(reader, name)
            started = history.lifecycle.started
            agents[name] = started.agent if started is not None else ""
        found.append(LessonEvidence(name, says, now_ms))
    if len(set(agents.values())) != 1:
        raise UsageError(
            "a lesson is about one agent",
            known="; ".join(f"{name} is about {agent}" for name, agent in agents.items()) or "no evidence was named",
            next_step="name evidence of one agent: --of FINDING, --of RUN/STEP or --of RUN",
        )
    return next(iter(agents.values())), tuple(found)


async def _on_record(reader: JournalReader, name: str) -> tuple[RunHistory, tuple[str, ...]]:
    run, _, step = name.partition("/")
    try:
        if not step:
            history = await reader.history(run)
            reason = history.lifecycle.reason
            return history, (f"the run is {history.lifecycle.status}" + (f": {reason}" if reason else ""),)
        history, state = await reader.operation(name)
    except UnknownRun as error:
        raise UsageError(
            f"{name!r} names neither a finding of now nor a run of this journal",
            next_step="see the findings: beforehand monitors --all",
        ) from error
    basis = state.settlement.basis
    says = [f"{state.intent.tool} is {state.status}", state.reason, f"proof: {basis}" if basis is not None else ""]
    return history, tuple(one for one in (*says, *state.links.contradicted) if one)


# --- checks ----------------------------------------------------------------------------------------------------------


def _check(wanted: LessonProposed) -> None:
    checked_by(wanted.by, "a lesson")
    if not wanted.evidence:
        raise UsageError("a lesson needs evidence", next_step="name it: --of FINDING, --of RUN/STEP or --of RUN")
    if not wanted.text.strip() or len(wanted.text) > LONGEST or not wanted.text.isprintable():
        raise UsageError(
            f"a lesson has 1 to {LONGEST} printable characters on one line, and this has {len(wanted.text)}",
            known="nothing was stored; each run of the agent would be shown it",
            next_step="say in one sentence what to avoid, check or prefer",
        )


async def _check_approval(journal: Journal, about: ReviewedLesson, by: str) -> None:
    if same_person(about.proposed_by, by):
        raise UsageError(
            f"{about.id} was proposed by {about.proposed_by}: another person approves it",
            known="it is not in effect; every later run of the agent would be shown it",
            next_step=f"another person: {to_type('lessons', 'approve', about.id, '--by', 'NAME')}",
        )
    others = [one.id for one in await list_lessons(journal, about.agent) if one.state == "approved"]
    if len(others) >= MOST:
        raise UsageError(
            f"{about.agent} has {len(others)} lessons in effect, which is the most",
            known=f"they are: {', '.join(others)}; {about.id} stays proposed",
            next_step="retire one that is no longer needed: beforehand lessons retire LESSON",
        )


async def _named(journal: Journal, lesson: str) -> ReviewedLesson:
    known = {one.id: one for one in await list_lessons(journal)}
    if lesson not in known:
        raise UsageError(f"lesson {lesson!r} does not exist", known="nothing was changed", next_step=_LIST)
    return known[lesson]
