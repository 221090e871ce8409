"""Shadow reviews in the browser and over the API: who sees the calls, who reviews them, and what is refused."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from beforehand.people import Policy, Rule
from beforehand_console.auth.authorize import Grant
from beforehand_console.reviews.shadow_reviews import drawn_call
from tests.unit.console.web.stand import Stand, standing
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.refunds import refunds_of_any

POLICY = Policy("refunds", (Rule("small", "true", "auto", shadow=1.0),))
FIRST, SECOND = "r-900/refund#1", "r-901/refund#1"
PAGE, API = "/shadow-reviews/r-900/refund%231", "/api/v1/shadow-reviews"


@asynccontextmanager
async def reviewing(lab: Lab) -> AsyncGenerator[Stand]:
    """Two refunds that were sent without a person, and wait for a review."""
    desk = refunds_of_any(lab)
    async with standing(lab, begun=(), agents=[desk], policy=POLICY) as stand:
        for cents in (900, 901):
            await stand.app.run(desk, cents)
        yield stand


async def given(stand: Stand, operation: str) -> Any:
    return (await drawn_call(stand.app.engine.journal, operation)).review


@virtual
async def test_a_call_is_listed_shown_and_reviewed_once(lab: Lab):
    async with reviewing(lab) as stand, await stand.client("bea") as bea, await stand.client("cid") as cid:
        assert '<a href="/shadow-reviews">2 sent calls wait</a>' in (await bea.get("/inbox")).text
        listed = (await bea.get("/shadow-reviews")).text
        assert listed.index(FIRST) < listed.index(SECOND), "the oldest first"
        page = (await bea.get(PAGE)).text
        assert "Was it right to send <code>refund</code>?" in page
        assert "sent it without approval" in page
        assert "900" in page
        done = await bea.post(PAGE, data={"type": "wrong", "why": "twice"})
        assert (done.status_code, done.headers["location"]) == (303, PAGE)
        review = await given(stand, FIRST)
        assert (review.word, review.by, review.note, review.via) == ("wrong", "bea", "twice", "typed")
        again = await cid.post(PAGE, data={"type": "right"})
        assert again.status_code == 409
        assert "was reviewed before" in again.text
        assert "said that it was wrong." in (await bea.get(PAGE)).text
        assert FIRST not in (await bea.get("/shadow-reviews")).text


@virtual
async def test_a_program_lists_and_reviews(lab: Lab):
    async with reviewing(lab) as stand, await stand.client("bea") as client:
        assert [one["operation"] for one in (await client.get(API)).json()] == [FIRST, SECOND]
        done = await client.post(API, json={"operation": SECOND, "word": "right", "note": "checked"})
        assert done.json() == {"operation": SECOND, "run": "r-901"}
        assert (await given(stand, SECOND)).word == "right"
        assert [one["operation"] for one in (await client.get(API)).json()] == [FIRST]


@pytest.mark.parametrize("form", [{}, {"type": "approve"}])
@virtual
async def test_a_form_that_does_not_fit_records_nothing(lab: Lab, form: dict[str, str]):
    async with reviewing(lab) as stand, await stand.client("bea") as client:
        assert (await client.post(PAGE, data=form)).status_code == 409
        assert await given(stand, FIRST) is None


@virtual
async def test_what_was_not_drawn_is_refused(lab: Lab):
    async with reviewing(lab) as stand, await stand.client("bea") as client:
        for operation in ("r-900/else#1", "nobody/refund#1"):
            refused = await client.post(API, json={"operation": operation, "word": "right"})
            assert refused.status_code == 409
            assert "was not drawn for a shadow review" in refused.json()["detail"]


@virtual
async def test_a_review_takes_a_role_for_the_tool(lab: Lab):
    async with reviewing(lab) as stand:
        looks = await stand.client("dan", Grant("viewer", ("refund",)))
        other = await stand.client("eve", Grant("admin", ("mail",)))
        assert (await looks.get(PAGE)).status_code == 200
        assert (await looks.post(PAGE, data={"type": "right"})).status_code == 403
        assert (await other.get("/shadow-reviews")).text.count("r-90") == 0
        assert "/shadow-reviews" not in (await other.get("/inbox")).text
        told = set[str]()
        for operation in (FIRST, "nobody/refund#1"):
            refused = await other.post(API, json={"operation": operation, "word": "right"})
            assert refused.status_code == 404
            told.add(refused.text.replace(operation, "X"))
        assert len(told) == 1, "what is not theirs is as good as not there"
        assert await given(stand, FIRST) is None
