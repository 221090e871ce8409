"""Shadow reviews: what left without a person is looked at afterwards, and the figures know what left and what was drawn."""

from typing import Any

import pytest

from beforehand.errors import RunSuspended, UsageError
from beforehand.people import Policy, Rule
from beforehand.people.items import items
from beforehand_console.reviews.metrics import review_metrics
from beforehand_console.reviews.reader import read_reviews
from beforehand_console.reviews.shadow_reviews import ShadowReview, dossier_of_call, drawn_call, open_reviews, review
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import refunds_of_any

POLICY = Policy(
    "refunds",
    rules=(
        Rule("small", "amount < 50.0", "auto", shadow=1.0),
        Rule("middle", "amount < 100.0", "sample", rate=0.5),
        Rule("large", "true", "ask"),
    ),
    amounts={"refund": "double(arguments.cents) / 100.0"},
)


async def left(app: Any, desk: Any) -> str:
    assert await app.run(desk, 900) == "paid 900"
    return "r-900/refund#1"


@virtual
async def test_what_left_is_put_before_a_person_afterwards(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        operation = await left(app, desk)
        reader = app.service.reader
        [one] = await open_reviews(reader.journal)
        assert (one.operation, one.run, one.tool, one.agent) == (operation, "r-900", "refund", "desk")
        assert one.asks == 'was it right that refund {"cents":900} was sent without a person?'
        assert await drawn_call(reader.journal, operation) == one
        shown = await dossier_of_call(reader, one)
        assert (shown.asks, shown.why) == (one.asks, "its rule 'small' sent it without approval")
        assert (shown.open, shown.answers, bytes(shown.arguments)) == (False, (), b'{"cents":900}')
        assert await items(reader) == [], "nobody is asked"
        assert lab.sent == ["refund 900"], "the run did not wait for it"


@virtual
async def test_the_first_word_counts_and_wrong_says_how_to_undo(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        journal = app.service.reader.journal
        call = await drawn_call(journal, await left(app, desk))
        with pytest.raises(UsageError, match="needs the name of a person"):
            await review(journal, call, ShadowReview("wrong", ""))
        first = ShadowReview("wrong", "bea", "twice in a week")
        assert await review(journal, call, first) == "beforehand undo r-900"
        with pytest.raises(UsageError, match="bea said that it was wrong"):
            await review(journal, call, ShadowReview("right", "carl"))
        assert await open_reviews(journal) == []
        assert (await drawn_call(journal, call.operation)).review == first
        found = await read_reviews(app.service.reader)
        [look] = found.looks
        assert (look.kind, look.said, look.by, look.traits.amount, look.traits.rule) == (
            "shadow",
            "wrong",
            "bea",
            9.0,
            "small",
        )


@virtual
async def test_the_figures_know_what_left_and_what_was_drawn(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        await left(app, desk)
        asked = []
        for cents in range(5_000, 5_040):
            try:
                await app.run(desk, cents)
            except RunSuspended:
                asked.append(cents)
        assert 8 < len(asked) < 32, "about a half was drawn"
        for cents in asked:
            await app.service.decline(f"r-{cents}/refund#1", by="bea")
        with pytest.raises(RunSuspended):
            await app.run(desk, 20_000)
        await app.service.approve("r-20000/refund#1", by="bea")
        found = await read_reviews(app.service.reader)
        assert len(found.passed) == 1 + 40 - len(asked)
        assert sum(one.sampled for one in found.looks) == len(asked)
        shown = review_metrics(found.looks, found.passed)
        assert shown.overrides.hits == len(asked)
        assert shown.wrong.rate == pytest.approx(40 / 41), (
            "the sample stands for all forty; no reviewer saw the first one"
        )
        assert shown.unseen == 1
        assert {one.name for one in shown.by_amount} == {"10 to 100", "100 to 1000"}


@virtual
async def test_what_is_not_drawn_is_not_asked_about(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        await app.run(desk, 900)
        with pytest.raises(UsageError, match="r-900/else#1 was not drawn for a shadow review"):
            await drawn_call(app.service.reader.journal, "r-900/else#1")


@virtual
async def test_an_undone_run_counts_as_wrong_without_a_look(lab: Lab):
    desk = refunds_of_any(lab)
    async with lab.app(desk, policy=POLICY) as app:
        await left(app, desk)
        await app.service.undo("r-900", by="bea", why="the wrong customer")
        found = await read_reviews(app.service.reader)
        assert [one.undone for one in found.passed] == [True]
        assert review_metrics(found.looks, found.passed).undone == 1
