"""An escalation policy at work: it is asked once, its ruling is on record before anything is sent, and stays."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Beforehand, Run, TransactionAborted, agent, tool
from beforehand.errors import RunSuspended
from beforehand.inspect.explain import explain
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.timeline import timeline
from beforehand.journal.port import Write
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.model.policy import Ruling, version_of
from beforehand.model.standing_permission import StandingPermission
from beforehand.people import Gate, Policy, PolicyError, Rule
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.policy.archive import kept_policy, kept_versions
from beforehand.people.standing_permissions import add_standing
from beforehand.testing.clock import EPOCH_MS
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import REFUND, asked, refunds, refunds_of_any

HOUR = timedelta(hours=1)
SMALL = Rule("small", "amount < 50", "auto")
HUGE = Rule("huge", "amount >= 1000", "refuse")
AMOUNTS = {"refund": "double(arguments.cents) / 100.0"}


def policy(*rules: Rule, **more: Any) -> Policy:
    return Policy("desk", rules, amounts=AMOUNTS, **more)


def kinds(lab: Lab) -> list[str]:
    return [type(record).__name__ for record in lab.records("r-ann")]


@virtual
async def test_what_a_rule_lets_through_leaves_with_its_ruling_on_record(lab: Lab):
    desk = refunds(lab, 4000, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        assert await app.run(desk, "ann") == "paid 4000"
    (ruled,) = lab.of("r-ann", r.Ruled)
    assert (ruled.ruling, ruled.facts.amount, ruled.facts.agent) == (
        Ruling("auto", "small", stratum="small confidence:unknown"),
        40.0,
        "desk",
    )
    assert ruled.policy.startswith("desk@")
    assert kinds(lab).index("Ruled") < kinds(lab).index("AttemptStarted")


@virtual
async def test_without_a_policy_nothing_is_judged(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid 9000"
    assert not lab.of("r-ann", r.Ruled)
    assert not lab.of("r-ann", r.OperationPlanned)


@virtual
async def test_what_a_rule_refuses_is_never_sent_and_the_agent_is_told(lab: Lab):
    desk = refunds(lab, 100_000, gate="")
    async with lab.app(desk, policy=policy(SMALL, HUGE)) as app:
        told = await app.run(desk, "ann")
    assert told.startswith("refused: the rule 'huge' of the policy desk@")
    assert lab.sent == []


@virtual
async def test_what_no_rule_knows_is_asked_and_sent_once_it_is_approved(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await asked(app, desk)
        (item,) = await items(app.service.reader)
        assert "the policy asks for a person: its rule 'default'" in item.asks
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await app.service.approve(REFUND, by="bea")
        assert await app.run(desk, "ann") == "paid 9000"
    assert len(lab.of("r-ann", r.Ruled)) == 1, "what was ruled stays, whichever process goes on"


@virtual
async def test_two_people_say_yes_each_under_a_name_of_their_own(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(Rule("big", "amount > 50", "two", queue="money"))) as app:
        await asked(app, desk)
        (item,) = await items(app.service.reader)
        assert item.queue == "money"
        await app.service.approve(REFUND, by="bea")
        await asked(app, desk)
        assert lab.sent == []
        await app.service.approve(REFUND, by="cid")
        assert await app.run(desk, "ann") == "paid 9000"


@virtual
async def test_a_sample_asks_about_its_share_and_lets_the_rest_leave(lab: Lab):
    @tool
    async def refund(cents: int) -> str:
        return "paid"

    @agent(run_id="r-{n}", tools=[refund])
    async def desk(run: Run, n: int) -> str:
        return await refund(9000)

    everything = policy(Rule("borderline", "amount > 50", "sample", rate=0.25, shadow=0.5))
    async with lab.app(desk, policy=everything) as app:
        for n in range(200):
            try:
                await app.run(desk, n)
            except RunSuspended:
                continue
        waiting = sum(one.kind == "approval" for one in await items(app.service.reader))
    rulings = [record.ruling for n in range(200) for record in lab.of(f"r-{n}", r.Ruled)]
    assert waiting == sum(one.sampled for one in rulings)
    assert 30 <= waiting <= 70, "0.25 of 200, within three standard deviations"
    assert 45 <= sum(one.shadow for one in rulings) <= 105
    assert {one.stratum for one in rulings} == {"borderline confidence:unknown"}


@virtual
async def test_the_gate_of_a_tool_asks_whatever_a_policy_says(lab: Lab):
    desk = refunds(lab, gate=Gate("cents > 5000", people=2))
    async with lab.app(desk, policy=policy(Rule("all", "true", "auto"))) as app:
        await asked(app, desk)
    (parked,) = lab.of("r-ann", r.OperationParked)
    assert parked.people == 2
    assert "the contract asks for a person: cents > 5000" in parked.why


@virtual
async def test_a_policy_that_changed_since_somebody_was_asked_asks_again_and_withdraws_nothing(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
    async with lab.app(desk, policy=policy(Rule("all", "true", "auto"))) as app:
        await asked(app, desk)
        assert lab.sent == []
        await app.service.approve(REFUND, by="bea", shown=lab.of("r-ann", r.OperationParked)[-1].asks)
        assert await app.run(desk, "ann") == "paid 9000"
    first, second = lab.of("r-ann", r.Ruled)
    assert (second.ruling.word, second.ruling.why) == ("ask", "a person was asked about it under another policy")
    assert first.policy != second.policy


@virtual
async def test_an_approval_given_under_the_same_policy_is_used_by_the_next_process(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await asked(app, desk)
        await app.service.approve(REFUND, by="bea")
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "paid 9000", "what was ruled and approved stands without the policy, too"


@virtual
async def test_a_question_that_nobody_answers_goes_on_to_others(lab: Lab):
    desk = refunds(lab, gate="")
    rule = Rule("big", "true", "ask", queue="money", within=HOUR, on_expiry="escalate", escalates_to="heads")
    async with lab.app(desk, policy=policy(rule)) as app:
        await asked(app, desk)
        await lab.pass_time(hours=2)
        with pytest.raises(RunSuspended):
            await app.resume("r-ann")
        (item,) = await items(app.service.reader)
        assert (item.queue, item.due_ms, item.then) == ("heads", lab.clock.wall_ms() + 7 * 24 * 3_600_000, "hold")
        await app.service.approve(REFUND, by="cid")
        assert await app.run(desk, "ann") == "paid 9000"
    assert [one.queue for one in lab.of("r-ann", r.OperationParked)] == ["money", "heads"]


@virtual
async def test_why_names_the_rule_the_version_and_the_facts(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await asked(app, desk)
        found = await explain(app.service.reader, REFUND, Now("b", 0, EPOCH_MS, 0))
        assert found.policy is not None
        assert (found.policy.word, found.policy.rule) == ("ask", "default")
        assert found.policy.says == f"a person is asked, by the rule 'default' of {found.policy.version}"
        assert found.policy.facts is not None
        assert found.policy.facts.amount == 90.0
        assert found.rule == "a person is asked"
    notes = [note for one in timeline("r-ann", lab.records("r-ann")).entries for note in one.notes]
    assert f"a person is asked, by the rule 'default' of {found.policy.version}" in [one.text for one in notes]


@virtual
async def test_the_rule_is_read_as_it_was_when_it_ruled(lab: Lab):
    """Its name is on record with each ruling. What it said then is kept once for each version."""
    desk = refunds_of_any(lab)
    first, second = (policy(Rule("dear", f"amount >= {least}", "ask", queue="money")) for least in (50, 70))
    for number, one in enumerate((first, first, second)):
        async with lab.app(desk, policy=one) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, 9000 + number)
    reader = JournalReader(lab.journal, await lab.journal.open())
    assert await kept_versions(reader) == [version_of(first), version_of(second)], "each of them once"
    for run, least in (("r-9000", 50), ("r-9001", 50), ("r-9002", 70)):
        found = await explain(reader, f"{run}/refund#1", Now("b", 0, EPOCH_MS, 0))
        assert found.policy is not None
        assert found.policy.read == Rule("dear", f"amount >= {least}", "ask", queue="money")
    assert await kept_policy(reader, version_of(second)) == second
    assert await kept_policy(reader, "desk@00000000") is None


@virtual
async def test_whoever_is_asked_is_shown_the_rule_and_what_the_policy_knew(lab: Lab):
    async with lab.app(
        desk := refunds(lab, gate=""), policy=policy(Rule("middle", "amount >= 50", "two", queue="money"))
    ) as app:
        await asked(app, desk)
        found = await dossier(app.service, REFUND)
    assert "middle" in found.why
    assert "desk@" in found.why
    assert any(line.startswith("the policy knew:") and "amount 90" in line for line in found.evidence)


@virtual
async def test_what_makes_amends_is_not_judged(lab: Lab):
    @tool
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        return "B1"

    @book.compensate(restores=True)
    async def unbook(operation: Any) -> None:
        lab.sent.append("unbook")

    @agent(run_id="r-{name}", tools=[book])
    async def trip(run: Run, name: str) -> str:
        try:
            async with run.transaction("trip") as booking:
                await book("Lisbon")
                booking.abort("changed my mind")
        except TransactionAborted as gone:
            return gone.reason

    rules = Policy("desk", (Rule("bookings", 'tool == "book" && reversible', "auto"),), default="refuse")
    async with lab.app(trip, policy=rules) as app:
        assert await app.run(trip, "ann") == "changed my mind"
    assert lab.sent == ["book Lisbon", "unbook"]
    assert [one.step for one in lab.of("r-ann", r.Ruled)] == ["trip/book#1"]


def test_a_policy_that_nobody_could_judge_opens_no_app():
    with pytest.raises(PolicyError, match="the policy desk: rule 'odd': when: it uses colour"):
        Beforehand("never.db", policy=Policy("desk", (Rule("odd", "colour == 'red'", "ask"),)))


@pytest.mark.parametrize(
    ("rule", "leaves"),
    [
        (Rule("plain", "true", "ask"), True),
        (Rule("doubt", "confidence > 0.5", "ask"), False),
        (Rule("both", "true", "two"), False),
        (Rule("audit", "true", "sample", rate=1.0), False),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
@virtual
async def test_a_standing_permission_meets_a_plain_question_only(lab: Lab, rule: Rule, leaves: bool):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(rule)) as app:
        await add_standing(app.engine, StandingPermission("", "refund", "bea", EPOCH_MS + 24 * 3_600_000))
        if leaves:
            assert await app.run(desk, "ann") == "paid 9000"
            assert lab.of("r-ann", r.AttemptStarted)[0].standing
        else:
            await asked(app, desk)


@pytest.mark.parametrize(("cents", "told"), [(4000, "paid 4000"), (200_000, "refused")])
@virtual
async def test_what_a_person_changed_is_judged_anew(lab: Lab, cents: int, told: str):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL, HUGE)) as app:
        await asked(app, desk)
        await app.service.edit(REFUND, by="bea", changes={"cents": cents})
        if told != "refused":
            await asked(app, desk)
            await app.service.approve(REFUND, by="cid", shown=lab.of("r-ann", r.OperationParked)[-1].asks)
        assert (await app.run(desk, "ann")).startswith(told)
    assert [one.ruling.word for one in lab.of("r-ann", r.Ruled)] == ["ask", "auto" if cents == 4000 else "refuse"]


@virtual
async def test_what_another_person_approved_after_an_edit_is_not_asked_about_again(lab: Lab):
    desk = refunds(lab, gate="")
    async with lab.app(desk, policy=policy(SMALL)) as app:
        await asked(app, desk)
        await app.service.edit(REFUND, by="bea", changes={"cents": 8000})
        await asked(app, desk)
        await app.service.approve(REFUND, by="cid", shown=lab.of("r-ann", r.OperationParked)[-1].asks)
        assert await app.run(desk, "ann") == "paid 8000"


@virtual
async def test_what_is_held_for_a_commit_keeps_its_ruling(lab: Lab):
    @tool
    async def mail(to: str) -> None:
        lab.sent.append(f"mail {to}")

    @agent(run_id="r-{name}", tools=[mail])
    async def trip(run: Run, name: str) -> str:
        async with run.transaction("trip") as booking:
            await booking.on_commit(mail, name)
            await run.ask("go?", step="go")
        return "sent"

    async with lab.app(trip, policy=Policy("desk", default="auto")) as app:
        with pytest.raises(RunSuspended):
            await app.run(trip, "ann")
        await app.service.answer("r-ann/trip/go", "yes", by="bea")
    async with lab.app(trip, policy=Policy("desk", default="refuse")) as app:
        assert await app.run(trip, "ann") == "sent"
    assert lab.sent == ["mail ann"]
    assert len(lab.of("r-ann", r.Ruled)) == 1


@pytest.mark.parametrize("judged", [False, True])
@virtual
async def test_a_ruling_shares_the_commit_of_the_attempt_that_it_lets_through(lab: Lab, judged: bool):
    desk = refunds(lab, 4000, gate="")
    commits: list[Any] = []

    async def counted(write: Any, commit: Commit) -> None:
        commits.append(write)
        await commit(write)

    intercept(lab.journal, Write, counted)  # what waits for the disk is counted
    async with lab.app(desk, policy=policy(SMALL) if judged else None) as app:
        await app.run(desk, "ann")
    assert len(commits) == 3, "the attempt, its outcome, and the end of the run"
