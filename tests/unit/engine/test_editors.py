"""An edit is a proposal: whatever gate and policy say, another person approves it, or nothing is sent."""

from typing import Any

import msgspec
import pytest

from beforehand import Key, Run, agent, tool
from beforehand.engine.commands import command_post
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.contract import Contract
from beforehand.model.decision.decide import decide
from beforehand.model.decision.moves import RequestApproval
from beforehand.model.decision.situation import Now, Situation
from beforehand.model.policy import Policy, Rule
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer, answer_all
from beforehand.people.dossier import dossier
from beforehand.people.loaded_item import load_item
from tests.unit.engine.lab import Lab, virtual

PAY = "r-ann/pay#1"
SAME = ("bea", "BEA", " Bea ", "\uff42\uff45\uff41")
"""One person, in the spellings that a name can be typed in."""


def desk_of(lab: Lab, *, gate: Any = "cents > 5000") -> Any:
    @tool(gate=gate, idempotency=Key.forever())
    async def pay(to: str, cents: int) -> str:
        lab.sent.append(f"{cents} to {to}")
        return f"paid {cents}"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay("ann", 9000)

    return desk


async def go_on(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended):
        await app.run(desk, "ann")


@pytest.mark.parametrize("by", SAME)
@virtual
async def test_an_editor_cannot_approve_the_edit(lab: Lab, by: str):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await go_on(app, desk)
        await answer(app.service, PAY, a.Edit({"to": "mallory", "cents": 99_999_999}), by="bea")
        await go_on(app, desk)
        assert lab.sent == [], "the edit alone sends nothing"
        shown = (await dossier(app.service, PAY)).digest
        with pytest.raises(UsageError, match="cannot approve an edit of their own"):
            await answer(app.service, PAY, a.Approve(), by=by, shown=shown)
        with pytest.raises(UsageError, match="cannot approve an edit of their own"):
            await answer_all(app.service, [OneOf(PAY, a.Approve(), shown)], by=by)
        with pytest.raises(UsageError, match="cannot approve an edit of their own") as alone:
            await answer(app.service, PAY, a.StandIn("paid"), by=by, shown=shown)
        assert f"beforehand answer {PAY} no" in alone.value.next_step, "one person alone reads what to do"
        await answer(app.service, PAY, a.Approve(), by="cid", shown=shown)
        assert await app.run(desk, "ann") == "paid 99999999"
    assert lab.sent == ["99999999 to mallory"]


@virtual
async def test_an_edit_below_the_gate_is_approved_by_another_person_all_the_same(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await go_on(app, desk)
        await answer(app.service, PAY, a.Edit({"to": "mallory", "cents": 5000}), by="bea")
        await go_on(app, desk)
        assert lab.sent == []
        (_, second) = lab.of("r-ann", r.OperationParked)
        assert "bea proposed these, and another person has to approve them" in second.why


@pytest.mark.parametrize("then", ["auto", "ask"])
@virtual
async def test_no_policy_lets_an_edit_leave_without_another_person(lab: Lab, then: Any):
    policy = Policy("money", (Rule("large", "arguments.cents > 5000", "ask"),), default=then)
    desk = desk_of(lab, gate=None)
    async with lab.app(desk, policy=policy) as app:
        await go_on(app, desk)
        await answer(app.service, PAY, a.Edit({"to": "mallory", "cents": 4000}), by="bea")
        await go_on(app, desk)
        with pytest.raises(UsageError, match="cannot approve an edit"):
            await app.service.approve(PAY, by="bea")
        await answer(app.service, PAY, a.Approve(), by="cid", shown=(await dossier(app.service, PAY)).digest)
        assert await app.run(desk, "ann") == "paid 4000"


@virtual
async def test_everyone_who_edited_is_a_proposer(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await go_on(app, desk)
        for by, cents in (("bea", 8000), ("cid", 7000), ("bea", 7001)):
            await answer(app.service, PAY, a.Edit({"cents": cents}), by=by)
            await go_on(app, desk)
        now = await load_item(app.service.reader, PAY)
        assert now.proposers == ("bea", "cid")
        for by in ("bea", "cid"):
            with pytest.raises(UsageError, match="cannot approve an edit"):
                await answer(app.service, PAY, a.Approve(), by=by, shown=now.digest)
        await answer(app.service, PAY, a.Approve(), by="dora", shown=now.digest)
        assert await app.run(desk, "ann") == "paid 7001"


@virtual
async def test_an_order_to_send_once_more_is_no_approval_of_an_edit(lab: Lab):
    """A review that comes between an edit and its approval: its answer would be the editor's own yes."""
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await go_on(app, desk)
        await answer(app.service, PAY, a.Edit({"cents": 9001}), by="bea")
        history = await app.service.history("r-ann")
        parked = r.OperationParked(step="pay#1", why="another run holds its business key", at=1, up=1)
        history.add(parked)
        history.add(r.Resolved(step="pay#1", word="retry", by="bea", attempts=0, at=1, up=1))
        operation = history.operations["pay#1"]
        assert (operation.approval.extra_attempt, operation.edits, operation.approval.approved_digest) == (
            "retry",
            True,
            "",
        )
        situation = Situation(Contract("pay"), asks="digest")
        assert isinstance(decide(operation, situation, Now("boot", 10, 10, 10)), RequestApproval)


@virtual
async def test_the_engine_refuses_the_word_of_an_editor_that_is_in_the_ledger(lab: Lab):
    """Another program may have put it there without asking the interface."""
    desk = desk_of(lab)
    async with lab.app(desk) as app:
        await go_on(app, desk)
        await answer(app.service, PAY, a.Edit({"cents": 9001}), by="bea")
        await go_on(app, desk)
        now = await load_item(app.service.reader, PAY)
        said = Command("approve", "Bea", record=r.ApprovalGranted(step="pay#1", approval=now.digest, by="Bea"))
        await app.engine.journal.commit(command_post("r-ann", msgspec.json.encode(said)))
        await go_on(app, desk)
    assert lab.sent == []
    assert lab.of("r-ann", r.CommandApplied)[-1].refused == "Bea proposed it"
