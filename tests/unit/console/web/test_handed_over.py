"""A run that was handed over, on the page and in the API: its state, whose queue it is in, and how it was answered."""

from typing import Any

import msgspec
import pytest

from beforehand import Key, Run, agent, tool
from beforehand.errors import ReplayDiverged
from beforehand.model.commands import Command, command_stream
from beforehand.model.questions import Answered, question_stream
from beforehand.model.records import RunReopened
from beforehand.people.assignments import Handing, item_stream
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand_console.auth.authorize import Grant
from tests.unit.console.web.stand import HOSTILE, desk_of, standing
from tests.unit.console.web.test_pages import fill
from tests.unit.engine.lab import Lab, virtual

REFUND = "refund-ann/refund#1"
ITEM = "far-ann/hand_off#1"
PAGE = "/inbox/far-ann/hand_off%231"


def far(lab: Lab) -> Any:
    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        return city

    @agent(run_id="far-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await run.facts.learn("city", HOSTILE, source="a mail")
        await book("Rome")
        return str(await run.hand_off("travel", why="it has to be signed", state={"form": HOSTILE}))

    return desk


@virtual
async def test_its_state_is_on_the_page_and_in_the_api(lab: Lab):
    async with standing(lab, agents=[far(lab)]) as stand, await stand.client("bea") as client:
        page = (await client.get(PAGE)).text
        assert "State of the run" in page
        assert "<code>far-ann/book#1</code> under the key <code>bh-" in page
        assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2, "the fact and what its code says"
        assert "<script>alert" not in page
        assert "\u202e" not in page
        state = (await client.get(f"/api/v1/items/{ITEM.replace('#', '%23')}")).json()["state"]
        assert (state["queue"], [one["tool"] for one in state["done"]]) == ("travel", ["book"])


@virtual
async def test_it_is_of_the_queue_that_its_code_named(lab: Lab):
    async with standing(lab, agents=[far(lab), *desk_of(lab)]) as stand:
        async with await stand.client("cid", Grant("operator", queues=("travel",))) as client:
            listed = (await client.get("/api/v1/items")).json()["items"]
            assert [one["item"] for one in listed] == [ITEM]
            assert (await fill(client, PAGE, "take_over")).status_code == 303
        async with await stand.client("dan", Grant("operator", queues=("money",))) as client:
            assert (await client.get(PAGE)).status_code == 404


@virtual
async def test_each_answer_is_kept_with_how_its_giver_is_known(lab: Lab):
    async with standing(lab, agents=[far(lab), *desk_of(lab)]) as stand, await stand.client("bea") as client:
        assert (await fill(client, PAGE, "delegate", to="cid")).status_code == 303
        await stand.authenticator.accounts.add("cid", [Grant("admin")], by="root")
        program, reader = await stand.proven("cid"), stand.app.service.reader
        for item, word in ((ITEM, {"type": "reply", "value": "signed"}), (REFUND, {"type": "approve"})):
            answer = {"item": item, "answer": word, "shown": (await load_item(reader, item)).digest}
            assert (await program.post("/api/v1/answers", json=answer)).status_code == 200
        journal = stand.app.engine.journal
        (given,) = await journal.entries(item_stream("far-ann", "hand_off#1"))
        (said,) = await journal.entries(question_stream("far-ann", "hand_off#1"))
        (approved,) = await journal.entries(command_stream("refund-ann"))
    handing, answered = msgspec.json.decode(given.body, type=Handing), msgspec.json.decode(said.body, type=Answered)
    assert (handing.by, handing.to, handing.via) == ("bea", "cid", "typed")
    assert (answered.by, answered.value, answered.via) == ("cid", "signed", "token")
    assert msgspec.json.decode(approved.body, type=Command).via == "token"


def lost(lab: Lab) -> Any:
    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        return city

    @agent(run_id="lost-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await book(HOSTILE if lab.changed else "Rome")
        return str(await run.ask("And now?"))

    return desk


@virtual
async def test_a_run_that_cannot_go_on_is_on_the_page_and_in_the_api_and_is_let_go_on_there(lab: Lab):
    agents = [lost(lab), *desk_of(lab)]
    async with standing(lab, agents=agents) as stand, await stand.client("bea") as client:
        lab.changed = True
        with pytest.raises(ReplayDiverged):
            await stand.app.resume("lost-ann")
        lab.changed = False
        listed = (await client.get("/api/v1/items?kind=handoff")).json()["items"]
        assert [one["item"] for one in listed] == ["lost-ann"]
        page = (await client.get("/inbox/lost-ann")).text
        for text in (
            "The run cannot go on",
            "How it stopped",
            "On record, and now",
            "What it did last",
            "Resume it",
        ):
            assert text in page
        assert "<script>alert" not in page
        assert "\u202e" not in page
        found = (await client.get("/api/v1/items/lost-ann")).json()
        assert "- recorded" in found["difference"]
        assert found["last"][0].startswith("book#1: succeeded")
        async with await stand.client("cid", Grant("answerer")) as answerer:
            assert (await fill(answerer, "/inbox/lost-ann", "resume")).status_code == 403, "it is for an operator"
        assert (await fill(client, "/inbox/lost-ann", "resume")).status_code == 303
        assert "bea resumes it" in (await client.get("/inbox/lost-ann")).text
        (row,) = await lab.journal.runs(run="lost-ann")
        assert (row.status, row.owner) == ("running", None), "a worker takes it up"
    (reopened,) = [one for one in lab.records("lost-ann") if isinstance(one, RunReopened)]
    assert reopened.by == "bea"


@virtual
async def test_or_it_is_called_off_there(lab: Lab):
    agents = [lost(lab), *desk_of(lab)]
    async with standing(lab, agents=agents) as stand, await stand.client("bea") as client:
        lab.changed = True
        with pytest.raises(ReplayDiverged):
            await stand.app.resume("lost-ann")
        assert "Cancel it" in (await client.get("/inbox/lost-ann")).text
        assert (await fill(client, "/inbox/lost-ann", "abandon", why="too late")).status_code == 303
        (row,) = await lab.journal.runs(run="lost-ann")
        assert (row.status, row.reason) == ("stopped", "cancelled: too late")


@virtual
async def test_a_run_that_raised_shows_on_the_page_and_in_the_api_where(lab: Lab):
    @agent(run_id="broken-{name}")
    async def broken(run: Run, name: str) -> None:
        await run.ask("Now?")
        raise ValueError(HOSTILE)

    async with standing(lab, agents=[broken]) as stand, await stand.client("bea") as client:
        (load_item,) = await items(stand.app.service.reader)
        await stand.app.service.answer(load_item.item, "yes", by="bea")
        with pytest.raises(ValueError, match="script"):
            await stand.app.run(broken, "ann")
        page = (await client.get("/inbox/broken-ann")).text
        assert "Raised in" in page
        assert "in broken: raise ValueError(HOSTILE)" in page
        assert "<script>alert" not in page
        (frame,) = (await client.get("/api/v1/items/broken-ann")).json()["frames"]
        assert frame.startswith(__file__)
        assert (await fill(client, "/inbox/broken-ann", "abandon", why="no use")).status_code == 303
        assert (await stand.app.service.row("broken-ann")).reason == "cancelled: no use"
