"""Lessons: proposed with evidence, approved by another person, shown to runs as advice, and the same on replay."""

import asyncio

import pytest

from beforehand import Key, Rejected, Run, agent, tool
from beforehand.engine.engine import Engine
from beforehand.errors import RunSuspended, UsageError
from beforehand.inspect.monitors.rules import MonitorSettings, finding_id
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.timeline import timeline
from beforehand.journal.port import Post
from beforehand.loop import ModelLoop
from beforehand.model.lessons import LONGEST, MOST, LessonEvidence, LessonProposed, ReviewedLesson, agent_lessons_stream
from beforehand.people.lessons import decide_lesson, evidence_for, list_lessons, propose_lesson, retire_lesson
from beforehand.queues.limits import DeclaredLimits, QueueLimits
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab, virtual

SEEN = (LessonEvidence("ticket-1/refund#1", ("refund is unknown",), 1),)


def wanted(text: str = "read the balance", by: str = "ann", of: str = "student") -> LessonProposed:
    return LessonProposed("", of, "check", text, SEEN, by)


async def approved(engine: Engine, text: str = "read the balance", of: str = "student") -> ReviewedLesson:
    return await decide_lesson(
        engine, (await propose_lesson(engine, wanted(text, of=of))).id, approved=True, by="ben", why="seen twice"
    )


@agent(run_id="{given}", tools=[])
async def student(run: Run, given: str) -> str:
    first = await run.lessons().recall()
    await run.wait_for("go")
    second, third = await run.gather(run.lessons().recall(), run.lessons().recall())
    assert first == second == third
    assert not run.facts.values(), "a lesson is never a fact"
    return ", ".join(f"{one.kind} {one.text}" for one in second)


async def ended(app, run: str) -> str:
    await app.service.signal(run, "go")
    return await app.resume(run)


@virtual
async def test_a_run_keeps_the_lessons_that_were_in_effect_when_it_first_asked(lab: Lab):
    async with lab.app(student) as app:
        engine = app.engine
        early = await approved(engine)
        await propose_lesson(engine, wanted("proposed only"))
        await approved(engine, "of another agent", of="other")
        with pytest.raises(RunSuspended):
            await app.run(student, "before")
        await retire_lesson(engine, early.id, by="cid")
        await approved(engine, "ask first")
        with pytest.raises(RunSuspended):
            await app.run(student, "after")
    async with lab.app(student) as app:
        assert await ended(app, "before") == "check read the balance", "a replay is shown what the first pass was shown"
        assert await ended(app, "after") == "check ask first"


@virtual
async def test_the_ready_loop_shows_them_as_advice_and_records_it(lab: Lab):
    model = ScriptedModel("done")
    loop, silent = ModelLoop(model, "Be brief."), ModelLoop(model, "Be brief.", lessons=False)

    @agent(run_id="{given}", tools=[])
    async def desk(run: Run, given: str) -> str:
        return await (silent if given == "silent" else loop)(run, given)

    async with lab.app(desk) as app:
        assert await app.run(desk, "none") == "done"
        lesson = await approved(app.engine, of="desk")
        assert await app.run(desk, "some") == "done"
        assert await app.run(desk, "silent") == "done"
        reader = app.service.reader
        some, none = [
            timeline(run, [record async for _, record in reader.records(run)]).entries for run in ("some", "none")
        ]
    instructions = [request.instructions for request in model.asked]
    assert (instructions[0], instructions[2]) == ("Be brief.", "Be brief.")
    begins, _, about, line, *_ = instructions[1].split("\n")
    assert begins == "Be brief."
    assert "None of them is a fact about the present case" in about
    assert line == "- Check first: read the balance"
    assert SEEN[0].about not in instructions[1], "evidence is about other runs: a model is not shown it"
    assert f"lessons shown: {lesson.id}" in [one.text for one in some]
    assert not [one for one in none if one.name == "advice"]


@virtual
async def test_another_person_approves_and_the_first_decision_counts(lab: Lab):
    async with lab.app(student) as app:
        engine = app.engine
        lesson = await propose_lesson(engine, wanted())
        assert await propose_lesson(engine, wanted(by="eve")) == lesson, "the same words again are the same lesson"
        for name in ("ann", "ANN ", "\u0430nn"):
            with pytest.raises(UsageError, match="another person approves it"):
                await decide_lesson(engine, lesson.id, approved=True, by=name)
        with pytest.raises(UsageError, match="is proposed"):
            await retire_lesson(engine, lesson.id, by="ben")
        given = await asyncio.gather(
            decide_lesson(engine, lesson.id, approved=True, by="ben"),
            decide_lesson(engine, lesson.id, approved=False, by="cid"),
            return_exceptions=True,
        )
        assert [type(one) for one in given].count(UsageError) == 1
        (now,) = await list_lessons(engine.journal)
        assert now.state == ("approved" if now.decided_by == "ben" else "declined")
        assert await decide_lesson(engine, lesson.id, approved=now.state == "approved", by=now.decided_by) == now
        with pytest.raises(UsageError, match="does not exist"):
            await decide_lesson(engine, "l-0", approved=True, by="ben")
        own = await propose_lesson(engine, wanted("withdrawn"))
        assert (await decide_lesson(engine, own.id, approved=False, by="ann")).state == "declined"
        again = await approved(engine, "withdrawn")
        assert again.id != own.id
        assert (await retire_lesson(engine, again.id, by="cid")).state == "retired"
        assert (await retire_lesson(engine, again.id, by="cid")).retired_by == "cid", "given again, as after a crash"
        with pytest.raises(UsageError, match="retired by cid already"):
            await retire_lesson(engine, again.id, by="dan")
        with pytest.raises(UsageError, match="retired by cid"):
            await decide_lesson(engine, again.id, approved=False, by="dan")


@virtual
async def test_what_cannot_be_shown_is_refused_and_the_number_is_bounded(lab: Lab):
    async with lab.app(student) as app:
        engine = app.engine
        for text in ("", "  ", "two\nlines", "bell\x07", "x" * (LONGEST + 1)):
            with pytest.raises(UsageError, match="printable characters on one line"):
                await propose_lesson(engine, wanted(text))
        with pytest.raises(UsageError, match="needs evidence"):
            await propose_lesson(engine, LessonProposed("", "student", "check", "x", (), "ann"))
        with pytest.raises(UsageError, match="name of a person"):
            await propose_lesson(engine, wanted(by=" "))
        for number in range(MOST):
            await approved(engine, f"lesson {number}")
        with pytest.raises(UsageError, match=f"has {MOST} lessons in effect"):
            await approved(engine, "one more")
        await retire_lesson(engine, (await list_lessons(engine.journal))[0].id, by="ann")
        assert (await approved(engine, "one more")).state == "approved"


@virtual
async def test_an_entry_that_cannot_be_read_hides_no_other_lesson(lab: Lab):
    async with lab.app(student) as app:
        await app.engine.journal.commit(Post(agent_lessons_stream("student"), "l-1", b'{"type":"proposed"}'))
        await approved(app.engine)
        with pytest.raises(RunSuspended):
            await app.run(student, "one")
        assert await ended(app, "one") == "check read the balance"
        assert [one.state for one in await list_lessons(app.engine.journal)] == ["approved"]


@tool(idempotency=Key.forever())
async def refuse(what: str) -> None:
    """A service that refuses."""
    raise Rejected("not on Sundays", code="sunday")


@agent(run_id="{given}", tools=[refuse])
async def clerk(run: Run, given: str) -> str:
    return (await run.call("refuse", {"what": given})).status


@virtual
async def test_evidence_is_what_is_on_record_about_one_agent(lab: Lab):
    async with lab.app(clerk, student) as app:
        assert await app.run(clerk, "one") == "failed"
        with pytest.raises(RunSuspended):
            await app.run(student, "two")
        reader = JournalReader(app.engine.journal, app.engine.identity)
        settings = MonitorSettings()
        of, (operation, run) = await evidence_for(reader, ("one/refuse#1", "one"), 7, settings)
        assert of == "clerk"
        assert operation.says[0] == "refuse is failed"
        assert any("not on Sundays" in one for one in operation.says)
        assert (run.about, run.says, run.at_ms) == ("one", ("the run is completed",), 7)
        for about in (("one", "two"), ()):
            with pytest.raises(UsageError, match="about one agent"):
                await evidence_for(reader, about, 7, settings)
        for name in ("5d41c7a0", "nothing", "nothing/refuse#1", "one/refuse#9"):
            with pytest.raises(UsageError):
                await evidence_for(reader, (name,), 7, settings)


@virtual
async def test_a_queue_has_no_lessons(lab: Lab):
    limits = DeclaredLimits({"mail": QueueLimits(concurrency=1)})
    async with lab.app(student, queues=limits) as app:
        await app.submit(student, "one", queue="mail")
        await lab.pass_time(minutes=61)
        reader = JournalReader(app.engine.journal, app.engine.identity)
        found = finding_id("queue", "mail", "")
        with pytest.raises(UsageError, match="about the queue mail, and a lesson is about an agent"):
            await evidence_for(reader, (found,), lab.clock.wall_ms(), MonitorSettings())
