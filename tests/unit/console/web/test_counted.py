"""An answer by count answers the calls that are alike as well: it takes the rights to each of them."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.errors import RunSuspended, UnknownRun
from beforehand.model import records as r
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.loaded_item import load_item
from beforehand.policies import Retry
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant, Principal
from beforehand_console.web.use_cases import UseCases
from tests.unit.engine.lab import Lab, virtual

FIRST, SECOND = "r-ann/~1/mail#1", "r-ann/~2/mail#1"


@virtual
async def test_a_count_takes_the_rights_to_each_call_that_it_answers(lab: Lab):
    @tool(retry=Retry(attempts=1))
    async def mail(to: str) -> str:
        lab.sent.append(to)
        raise TimeoutError("no answer")

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> Any:
        return [one.status for one in await run.gather(mail.outcome("bea"), mail.outcome("bea"))]

    ben = Principal("ben", (Grant("operator", queues=("eu",)),))
    dan = Principal("dan", (Grant("operator"),))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await answer(app.service, FIRST, a.Delegate(queue="eu"), by="root")
        await answer(app.service, SECOND, a.Delegate(queue="us"), by="root")
        people = UseCases(app.service, Authenticator(app.engine))
        given, shown = a.HappenedTimes(1, "give_up", "x", "y"), (await load_item(app.service.reader, FIRST)).digest
        with pytest.raises(UnknownRun, match="no item r-ann/~2/mail#1 for you"):
            await people.answer(ben, FIRST, given, shown)
        assert not lab.of("r-ann", r.Resolved)
        await people.answer(dan, FIRST, given, shown)
        assert [one.word for one in lab.of("r-ann", r.Resolved)] == ["happened", "did_not_happen"]
