"""`run.ask`: a run waits for a person without a process; the first answer is final, a deadline's included."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, agent
from beforehand.errors import ReplayDiverged, RunSuspended, UsageError
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from tests.unit.engine.lab import DAYS, Lab, virtual

CITIES = ("Paris", "Rome")
DAY = timedelta(days=1)


def asking(**settings: Any):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> object:
        try:
            return await run.ask("Which city?", **settings)
        except TimeoutError as late:
            return str(late)

    return desk


@virtual
async def test_it_waits_without_a_process_and_goes_on_with_the_answer(lab: Lab):
    desk = asking(choices=CITIES)
    async with lab.app(desk) as app:
        with pytest.raises(
            RunSuspended, match=r"Which city\? \(one of: Paris, Rome\)(.|\n)*beforehand answer r-ann/ask#1"
        ):
            await app.run(desk, "ann")
    async with lab.app(desk) as app:
        assert await app.service.answer("r-ann/ask#1", "Rome", by="bea") == "Rome"
        assert await app.run(desk, "ann") == "Rome"
    told = timeline("r-ann", lab.records("r-ann")).entries
    assert [one.text for one in told if one.kind == "question"] == [
            "Which city? (one of: Paris, Rome), until 2026-01-08 00:00:00 UTC", "Which city? Rome, says bea",
        ]  # fmt: skip


@virtual
async def test_only_what_answers_is_taken_and_only_the_first(lab: Lab):
    desk = asking(choices=CITIES)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="one of: Paris, Rome"):
            await app.service.answer("r-ann/ask#1", "Oslo", by="bea")
        with pytest.raises(UsageError, match="its open questions: ask#1"):
            await app.service.answer("r-ann/ask#2", "Rome", by="bea")
        both = await asyncio.gather(
            app.service.answer("r-ann/ask#1", "Rome", by="bea"),
            app.service.answer("r-ann/ask#1", "Paris", by="cid"),
            return_exceptions=True,
        )
        refused = [one for one in both if isinstance(one, UsageError)]
        assert len(refused) == 1
        assert "was already answered by" in str(refused[0])
        assert await app.run(desk, "ann") in both


@pytest.mark.parametrize(
    ("returns", "written", "value"),
    [(str, "007", "007"), (int, "7", 7), (float, "7", 7.0), (bool, "no", False), (bool, "TRUE", True)],
)
def test_an_answer_has_the_type_that_was_asked_for(returns: type, written: str, value: object):
    @virtual
    async def check(lab: Lab) -> None:
        desk = asking(returns=returns)
        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
            await app.service.answer("r-ann/ask#1", written, by="bea")
            answer = await app.run(desk, "ann")
            assert (answer, type(answer)) == (value, type(value))

    check()


@virtual
async def test_at_the_deadline_the_default_is_the_answer_and_nobody_changes_it(lab: Lab):
    desk = asking(choices=CITIES, timeout=DAY, default="Paris")
    async with lab.app(desk, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert (await app.service.row("r-ann")).due_ms == lab.clock.wall_ms() + 86_400_000
        await lab.pass_time(days=1)
        assert await app.run(desk, "ann") == "Paris"
        with pytest.raises(UsageError):
            await app.service.answer("r-ann/ask#1", "Rome", by="bea")


@virtual
async def test_an_answer_after_the_deadline_counts_while_the_run_has_not_looked(lab: Lab):
    desk = asking(choices=CITIES, timeout=DAY, default="Paris")
    async with lab.app(desk, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(days=2)
        await app.service.answer("r-ann/ask#1", "Rome", by="bea")
        assert await app.run(desk, "ann") == "Rome"


@virtual
async def test_without_a_default_the_deadline_is_an_error_that_code_can_catch(lab: Lab):
    desk = asking(timeout=DAY)
    async with lab.app(desk, **DAYS) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(days=1)
        assert str(await app.run(desk, "ann")).startswith("no answer to 'Which city?'")


@virtual
async def test_another_question_at_the_same_step_is_a_divergence(lab: Lab):
    asked = ["Which city?"]

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await run.ask(asked[0])

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        asked[0] = "Which country?"
        await app.service.answer("r-ann/ask#1", "Rome", by="bea")
        with pytest.raises(ReplayDiverged, match="asks another question"):
            await app.run(desk, "ann")


@virtual
async def test_questions_that_nobody_can_answer_are_refused_before_they_are_asked(lab: Lab):
    for number, (settings, problem) in enumerate(
        (
            ({"default": "Paris"}, "has a default and no timeout"),
            ({"choices": CITIES, "timeout": DAY, "default": "Oslo"}, "does not answer"),
            ({"choices": ("a", 1)}, "no single plain type"),
            ({"choices": ("HTML", "TEXT")}, "the choice TEXT of the question .* cannot be typed"),
            ({"returns": dict}, "no single plain type"),
        )
    ):
        desk = asking(**settings)
        async with lab.app(desk, answer_within_ms=0) as app:
            with pytest.raises(UsageError, match=problem):
                await app.run(desk, str(number))
        assert not lab.of(f"r-{number}", r.QuestionAsked)


@virtual
async def test_two_questions_may_be_asked_at_once(lab: Lab):
    """Each is asked in the branch that awaits it, so a replay meets it there again."""

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        colour, size = await run.gather(run.ask("which colour?"), run.ask("which size?"))
        return f"{colour} and {size}"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        asked = lab.of("r-ann", r.QuestionAsked)
        for question in asked:
            answer = {"which colour?": "red", "which size?": "large"}[question.question.text]
            await app.service.answer(f"r-ann/{question.step}", answer, by="bea")
        assert await app.run(desk, "ann") == "red and large"


@virtual
async def test_a_process_that_slept_ends_no_question_that_another_one_asked(lab: Lab):
    """It stops after it has asked, and before the question is on record: it has missed that deadline, and no other."""
    desk = asking(timeout=timedelta(seconds=20), default="Oslo")
    async with lab.app(desk) as sleeper, lab.app(desk) as other:
        process, asleep = lab.processes[-2], list[Callable[[], None]]()

        async def entries(stream: str, after: int = 0) -> Any:
            if stream.startswith("question") and not asleep:
                process.awake.clear()
                asleep.append(lab.keep_back_what_rides())  # it is in the memory of the process that stops
            await process.awake.wait()
            return await lab.journal.entries(stream, after)

        process.entries = entries
        asked = sleeper.start(desk, "ann")
        await lab.pass_time(seconds=17)
        assert not lab.of("r-ann", r.QuestionAsked), "the process stopped before the question was on record"
        running = other.start(desk, "ann")
        await lab.pass_time(seconds=10)
        asleep[0]()
        process.awake.set()
        await lab.pass_time(seconds=5)
        await other.service.answer("r-ann/ask#1", "Rome", by="bea")
        assert [await running.result(), await asked.result()] == ["Rome", "Rome"]
