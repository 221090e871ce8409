"""What an approved call relies on: read before a person is asked, part of what the yes is bound to."""

from typing import Any

import pytest

from beforehand import Key, NotSent, Operation, Run, agent, current_operation, tool
from beforehand.control.approvals import asked_about
from beforehand.engine.approvals import AnswerContext, verdict_of
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.operation import OTHERWISE
from beforehand.model.run_history import RunHistory
from beforehand.people import Policy, Rule
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from tests.unit.engine.lab import Lab, virtual
from tests.unit.model.stories import Story


class Stock:
    """What a call relies on: how many there are, as the outside world has it."""

    def __init__(self) -> None:
        self.left = 7
        self.busy = 0


def takes(lab: Lab, stock: Stock) -> Any:
    @tool(gate="true", idempotency=Key.forever())
    async def take(count: int) -> str:
        assert current_operation().key
        if stock.busy:
            stock.busy -= 1
            raise NotSent("busy")
        lab.sent.append(f"take {count} of {stock.left}")
        return "taken"

    @take.observe
    async def there_are(operation: Operation[str]) -> int:
        return stock.left

    @agent(run_id="r-{name}", tools=[take])
    async def desk(run: Run, name: str) -> str:
        return (await take.outcome(2)).reason or "taken"

    return desk


TAKE = "r-ann/take#1"
RULED = Policy("desk", (Rule("every", "true", "ask"),))


@pytest.mark.parametrize("policy", [None, RULED])
@virtual
async def test_the_first_yes_is_bound_to_what_the_call_relied_on_when_it_was_asked(lab: Lab, policy: Policy | None):
    desk = takes(lab, stock := Stock())
    async with lab.app(desk, policy=policy) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert "it relies on: 7" in (await dossier(app.service, TAKE)).evidence
        await app.service.approve(TAKE, by="bea")
        stock.left = 1
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.sent == []
        changed = await dossier(app.service, TAKE)
        assert "it relies on: 1" in changed.evidence
        await app.service.approve(TAKE, by="bea", shown=changed.digest)
        assert await app.run(desk, "ann") == "taken"
    assert lab.sent == ["take 2 of 1"]


@virtual
async def test_a_yes_covers_the_attempts_after_a_busy_answer(lab: Lab):
    desk = takes(lab, stock := Stock())
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.approve(TAKE, by="bea")
        stock.busy = 2
        assert await app.run(desk, "ann") == "taken"
    assert lab.sent == ["take 2 of 7"]
    assert len(lab.of("r-ann", r.OperationParked)) == 1


@virtual
async def test_what_cannot_be_read_is_asked_about_by_nobody(lab: Lab):
    @tool(gate="true")
    async def take(count: int) -> str:
        raise AssertionError

    @take.observe
    async def there_are(operation: Operation[str]) -> int:
        raise ConnectionResetError("gone")

    @agent(run_id="r-{name}", tools=[take])
    async def desk(run: Run, name: str) -> str:
        return (await take.outcome(2)).code

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "unreadable"
        assert await items(app.service.reader) == []


@pytest.mark.parametrize("about", ["a1", OTHERWISE])
def test_between_a_change_and_the_next_question_no_word_counts(about: str):
    """Its process may die there: what was asked is void, and no person was asked anew. A no would end it for good."""
    state = Story().planned().parked(asks="a1").approved().reobserved("changed").state
    assert state is not None
    history = RunHistory("r-ann")
    history.operations[state.step] = state
    with pytest.raises(UsageError, match="has changed since it was asked about"):
        asked_about(history, state.step)
    with pytest.raises(UsageError, match="has changed since"):
        verdict_of(state, r.ApprovalRefused(step=state.step, approval=about, by="cid"), AnswerContext({}, b""))
