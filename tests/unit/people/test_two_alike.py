"""Calls of one run that do the same and are unknown together: a person says how many were sent."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.people import answers as a
from beforehand.people.answering import answer, answer_idempotently
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual

FIRST, SECOND, OTHER = "r-ann/~1/mail#1", "r-ann/~2/mail#1", "r-ann/~3/mail#1"


def mailing(lab: Lab, lost: int = 3) -> Any:
    """Three mails at once, two of them alike; the first answers are lost."""
    tried: list[str] = []

    @tool(retry=Retry(attempts=1))
    async def mail(to: str) -> str:
        lab.sent.append(to)
        tried.append(to)
        if len(tried) <= lost:
            raise TimeoutError("no answer")
        return f"to {to}"

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> Any:
        outcomes = await run.gather(*(mail.outcome(to) for to in ("bea", "bea", "cid")))
        return [f"{one.status} {one.value}" for one in outcomes]

    return desk


async def unknown(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")
    assert {one.item for one in await items(app.service.reader)} == {FIRST, SECOND, OTHER}


@virtual
async def test_each_question_names_the_other_and_how_to_count(lab: Lab):
    desk = mailing(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        for item, other in ((FIRST, SECOND), (SECOND, FIRST)):
            found = await dossier(app.service, item)
            assert found.risks[0] == f"one of 2 like this: {other} is unknown, too; say how many were sent"
            shown = f"--evidence TEXT --shown {found.digest[:12]}"
            assert found.answers[0] == f"beforehand answer '{item}' retry --sent NUMBER {shown}"
        assert not [risk for risk in (await dossier(app.service, OTHER)).risks if "like this" in risk]


@pytest.mark.parametrize("asked", [FIRST, SECOND])
@virtual
async def test_the_first_in_the_order_of_records_counts_as_sent_whichever_is_answered(lab: Lab, asked: str):
    desk = mailing(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        shown = (await load_item(app.service.reader, asked)).digest
        one = a.HappenedTimes(1, "retry", "one is in the sent mail", "to bea")
        await answer(app.service, asked, one, by="dan", shown=shown)
        await answer(app.service, OTHER, a.DidNotHappenAnswer("give_up"), by="dan")
        assert await app.run(desk, "ann") == ["succeeded to bea", "succeeded to bea", "failed None"]
        assert lab.sent == ["bea", "bea", "cid", "bea"], "one of two was sent again"
        with pytest.raises(UsageError):
            await answer(app.service, asked, one, by="dan", shown=shown)


@virtual
async def test_the_same_count_given_twice_counts_once(lab: Lab):
    desk = mailing(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        one = a.HappenedTimes(1, "give_up", "one is in the sent mail", "to bea")
        shown = (await load_item(app.service.reader, FIRST)).digest
        await answer_idempotently(app.service, FIRST, one, by="dan", shown=shown)
        await answer_idempotently(app.service, FIRST, one, by="dan", shown=shown)
        phases = [(await app.service.operation(name))[1].phase for name in (FIRST, SECOND, OTHER)]
    assert phases == ["succeeded", "failed", "unknown"]


@virtual
async def test_a_count_that_cannot_be_is_refused_and_nothing_is_recorded(lab: Lab):
    desk = mailing(lab)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        first = (await load_item(app.service.reader, FIRST)).digest
        with pytest.raises(UsageError, match="needs the digest of what was shown"):
            await answer(app.service, FIRST, a.HappenedTimes(1, "retry", "x", "y"), by="dan")
        with pytest.raises(UsageError, match="one of 2 alike, and 3 are said"):
            await answer(app.service, FIRST, a.HappenedTimes(3, "retry", "x", "y"), by="dan", shown=first)
        with pytest.raises(UsageError, match="needs the result of mail"):
            await answer(app.service, FIRST, a.HappenedTimes(1, "retry", "x"), by="dan", shown=first)
        with pytest.raises(UsageError, match="does not take this answer"):
            await answer(app.service, OTHER, a.HappenedTimes(1), by="dan")
        shown = (await load_item(app.service.reader, SECOND)).digest
        await answer(app.service, FIRST, a.DidNotHappenAnswer("give_up"), by="dan")
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, SECOND, a.DidNotHappenAnswer("retry"), by="eve", shown=shown)
        assert [one.item for one in await items(app.service.reader)] == [SECOND, OTHER]


@virtual
async def test_a_count_is_about_the_sends_that_were_shown(lab: Lab):
    """Meanwhile another person had the second one sent again, and it is unknown again."""
    desk = mailing(lab, lost=4)
    async with lab.app(desk) as app:
        await unknown(app, desk)
        shown = (await load_item(app.service.reader, FIRST)).digest
        await answer(app.service, SECOND, a.DidNotHappenAnswer("retry"), by="eve")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, FIRST, a.HappenedTimes(1, "retry", "x", "to bea"), by="dan", shown=shown)
    assert lab.sent == ["bea", "bea", "cid", "bea"]
