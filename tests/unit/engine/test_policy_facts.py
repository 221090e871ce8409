"""What a policy knows of a call: how sure it is, what was sent and said before, and how much waits for people."""

from datetime import timedelta

import msgspec
import pytest

from beforehand import Run, agent, tool
from beforehand.errors import Declined, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.policy import Past
from beforehand.people import Policy, Rule
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_policies import policy, refunds


class Sure(msgspec.Struct):
    confidence: float


async def guess(confidence: float) -> Sure:
    return Sure(confidence)


async def other(confidence: float) -> str:
    return "nothing said"


@virtual
async def test_how_sure_a_call_is_comes_from_the_decision_before_it_in_its_branch(lab: Lab):
    @tool
    async def note(what: str) -> None:
        lab.sent.append(what)

    @agent(run_id="r-{name}", tools=[note])
    async def desk(run: Run, name: str) -> None:
        await note("nobody decided")
        await run.decide(guess, 0.4)

        async def branch() -> None:
            await note("as its parent")
            await run.decide(guess, 0.8)
            await note("as its own")

        await run.gather(branch())
        await note("as before")
        await note.options(confidence=0.1)("as said")
        await run.call("note", {"what": "as said of a model"}, confidence=0.2, taint="web")
        await run.decide(guess, 85)
        await note("not a share")
        await run.decide(other, 1)
        await note.options(taint="mail")("nobody said")

    async with lab.app(desk, policy=Policy("desk", default="auto")) as app:
        await app.run(desk, "ann")
    facts = [one.facts for one in lab.of("r-ann", r.Ruled)]
    assert [one.confidence for one in facts] == [None, 0.4, 0.8, 0.4, 0.1, 0.2, None, None]
    assert [one.taint for one in facts] == ["", "", "", "", "", "web", "", "mail"]
    assert [one.origin for one in facts] == ["code"] * 5 + ["model", "code", "code"]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, 85])
def test_a_confidence_that_is_no_share_is_refused(confidence: float):
    @tool
    async def note(what: str) -> None:
        """Nothing."""

    with pytest.raises(UsageError, match="confidence="):
        note.options(confidence=confidence)


@virtual
async def test_what_was_sent_and_said_about_a_subject_before_is_known_over_all_runs(lab: Lab):
    @tool
    async def refund(customer: str, cents: int) -> str:
        return "paid"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        try:
            return await refund(name.partition("-")[0], 4000)
        except Declined as no:
            return no.code

    often = Rule("often", "history.sent >= 2", "ask")
    rules = policy(often, subjects={"refund": "arguments.customer"}, default="auto")
    async with lab.app(desk, policy=rules) as app:
        for name in ("ann-1", "ann-2", "bob-1"):
            assert await app.run(desk, name) == "paid"
        for name, word in (("ann-3", "approve"), ("ann-4", "decline")):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
            await getattr(app.service, word)(f"r-{name}/refund#1", by="bea")
            await app.run(desk, name)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann-5")
    past = [lab.of(f"r-{name}", r.Ruled)[0].facts.history for name in ("ann-1", "ann-2", "bob-1", "ann-5")]
    assert past == [Past(), Past(1, 40.0), Past(), Past(3, 120.0, 1, 1)]


@virtual
async def test_an_edit_counts_as_approved_once_another_person_approved_it(lab: Lab):
    desk = refunds(lab, 4000)
    rules = policy(Rule("all", "true", "ask"), subjects={"refund": "'everybody'"})
    async with lab.app(desk, policy=rules) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.edit("r-ann/refund#1", {"cents": 3000}, by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.approve("r-ann/refund#1", by="cid", shown=lab.of("r-ann", r.OperationParked)[-1].asks)
        await app.run(desk, "ann")
        with pytest.raises(RunSuspended):
            await app.run(desk, "bob")
    assert lab.of("r-bob", r.Ruled)[0].facts.history == Past(1, 30.0, approved=1)


@virtual
async def test_history_goes_back_as_far_as_the_policy_says(lab: Lab):
    desk = refunds(lab, 4000)
    rules = policy(subjects={"refund": "'everybody'"}, default="auto", remembers=timedelta(hours=2))
    async with lab.app(desk, policy=rules) as app:
        await app.run(desk, "ann")
        await lab.pass_time(hours=3)
        await app.run(desk, "bob")
        await app.run(desk, "cid")
    assert lab.of("r-bob", r.Ruled)[0].facts.history == Past()
    assert lab.of("r-cid", r.Ruled)[0].facts.history == Past(1, 40.0)


@virtual
async def test_how_much_waits_for_people_is_known_to_rules(lab: Lab):
    desk = refunds(lab)
    rules = policy(Rule("too many", "queue.depth >= 2", "refuse"), Rule("rest", "true", "ask"))
    async with lab.app(desk, policy=rules) as app:
        for name in ("ann", "bob"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
            await lab.pass_time(minutes=30)
        assert (await app.run(desk, "cid")).startswith("refused: the rule 'too many'")
    (last,) = lab.of("r-cid", r.Ruled)
    assert (last.facts.queue.depth, last.facts.queue.oldest_hours) == (2, 1.0)
