"""Calibration: what people found moves a threshold, on record, once; and the next app judges by it."""

from typing import Any

import pytest

from beforehand.errors import RunSuspended
from beforehand.model.thresholds import Threshold
from beforehand.people import Policy, PolicyError, Rule
from beforehand.people.policy.judge import PolicyJudge, threshold_positions
from beforehand_console.reviews.calibration import apply, proposals
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import refunds_of_any

LARGE = Threshold(
    "large", start=50, least=20, most=80, step=10, width=20, goal=0.05, enough=20, safe="below", of="amount"
)
POLICY = Policy(
    "refunds",
    rules=(
        Rule("huge", "amount >= 1000.0", "ask"),
        Rule("small", "amount <= threshold.large", "sample", rate=0.5),
        Rule("rest", "true", "ask"),
    ),
    amounts={"refund": "double(arguments.cents) / 100.0"},
    thresholds={"large": LARGE},
)


async def asked(app: Any, desk: Any, cents: int) -> bool:
    try:
        await app.run(desk, cents)
    except RunSuspended:
        return True
    return False


async def answered(app: Any, desk: Any, cents: range, *, yes: bool) -> int:
    """How many of these were asked about, and answered so."""
    found = [one for one in cents if await asked(app, desk, one)]
    for one in found:
        item = f"r-{one}/refund#1"
        await (app.service.approve(item, by="bea") if yes else app.service.decline(item, by="bea"))
    return len(found)


@virtual
async def test_what_people_refuse_of_the_sample_tightens_it(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        assert await answered(app, desk, range(4_000, 4_060), yes=False) >= 20
        assert await answered(app, desk, range(200_000, 200_030), yes=True) == 30
        [one] = await proposals(app.service.reader, POLICY, lab.clock.wall_ms())
        assert (one.judgement.direction, one.judgement.at, one.judgement.to) == ("tighten", 50, 40)
        assert one.judgement.beyond.rate == 1.0
        assert one.judgement.before.of == 0, "what another rule asks about says nothing"
        assert await threshold_positions(app.service.engine.journal) == {}, "it is only proposed"
        [move] = await apply(app.service.engine.journal, [one], "anna")
        assert (move.name, move.before, move.after, move.by) == ("large", 50, 40, "anna")
        assert await apply(app.service.engine.journal, [one], "carl") == [], "the second one is only on record"
        [now] = await proposals(app.service.reader, POLICY, lab.clock.wall_ms() + 1)
        assert (now.number, now.judgement.at, now.judgement.direction) == (1, 40, "stay"), "only newer words count"


@virtual
async def test_what_people_let_through_loosens_it(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        assert await answered(app, desk, range(5_100, 5_220), yes=True) == 120
        [one] = await proposals(app.service.reader, POLICY, lab.clock.wall_ms())
        assert (one.judgement.direction, one.judgement.to) == ("loosen", 60)


@virtual
async def test_the_next_app_judges_by_it_under_another_version(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        before = app.service.engine.policy.version
        await answered(app, desk, range(4_000, 4_060), yes=False)
        await apply(
            app.service.engine.journal, await proposals(app.service.reader, POLICY, lab.clock.wall_ms()), "anna"
        )
    async with lab.app(desk, policy=POLICY) as app:
        assert app.service.engine.policy.version != before
        assert app.service.engine.policy.policy.thresholds["large"].start == 40
        assert all([await asked(app, desk, cents) for cents in range(4_500, 4_520)]), "45 is asked about now"


def test_a_threshold_that_is_not_declared_is_refused():
    with pytest.raises(PolicyError, match="declares no threshold sure"):
        PolicyJudge(Policy("x", rules=(Rule("a", "confidence >= threshold.sure", "auto"),)))
