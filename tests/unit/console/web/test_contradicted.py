"""A contradicted outcome on the pages, over the API and in notices: also after its run has ended."""

from typing import Any

import pytest

from beforehand import Key, Operation, Run, agent, current_operation, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred
from beforehand.model.records import Raw
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.people.items import placed
from beforehand_console.notify.compose import line_of
from beforehand_console.notify.planner import waiting_of
from beforehand_console.notify.schedule import NotifiedItem
from tests.unit.console.web.stand import Stand, standing
from tests.unit.console.web.test_api import give, path_of
from tests.unit.engine.lab import Lab, virtual

ITEM = "pay-ann/pay#1"


def desk(lab: Lab, *, compensates: bool) -> Any:
    @tool(idempotency=Key.forever())
    async def pay(name: str) -> str:
        assert current_operation().key
        raise Deferred("accepted", key=f"P-{name}")

    if compensates:

        @pay.compensate
        async def take_back(operation: Operation[str], name: str) -> None:
            lab.sent.append("take back")

    @agent(run_id="pay-{name}", tools=[pay])
    async def pays(run: Run, name: str) -> str:
        return await pay(name)

    return pays


async def bounce(stand: Stand, pays: Any) -> None:
    await stand.app.service.deliver("P-ann", ArrivedAnswer("m1", result=Raw(b'"R-1"')))
    assert await stand.app.run(pays, "ann") == "R-1"
    await stand.app.service.deliver("P-ann", ArrivedAnswer("m2", "failed", why="<b>bounced</b>"))


@pytest.mark.parametrize("compensates", [True, False])
@virtual
async def test_the_item_the_run_and_the_list_show_it_and_a_form_answers_it(lab: Lab, compensates: bool):
    pays = desk(lab, compensates=compensates)
    async with standing(lab, agents=[pays]) as stand, await stand.client("bea") as client:
        await bounce(stand, pays)
        page = (await client.get(f"/inbox/{ITEM.replace('#', '%23')}")).text
        assert "was contradicted" in page
        assert "run pay-ann completed with its result" in page
        assert "<b>bounced" not in page
        assert ("/compensate" in page or 'value="compensate"' in page) is compensates
        assert "Send it again" not in page
        assert "Send it once more" not in page
        assert "contradicted: pay#1" in (await client.get("/runs")).text
        run = (await client.get("/runs/pay-ann")).text
        assert "contradicted: attempt 1" in run
        assert "Open it in the inbox" in run


@virtual
async def test_the_api_lists_it_and_takes_the_answer(lab: Lab):
    pays = desk(lab, compensates=False)
    async with standing(lab, agents=[pays]) as stand, await stand.client("bea") as client:
        await bounce(stand, pays)
        (item,) = (await client.get("/api/v1/items")).json()["items"]
        assert (item["kind"], item["item"]) == ("review", ITEM)
        assert (await client.get("/api/v1/runs/pay-ann")).json()["contradicted"] == ["pay#1"]
        assert (await client.get("/api/v1/runs")).json()["runs"][0]["contradicted"] == ["pay#1"]
        found = (await client.get(path_of(ITEM))).json()
        assert found["relied"] == ["run pay-ann completed with its result"]
        assert (await give(client, ITEM, a.RetrySameKey())).status_code == 409
        assert (await give(client, ITEM, a.DidNotHappenAnswer(evidence="no money"))).status_code == 200
        assert (await client.get("/api/v1/items")).json()["items"] == []
        assert (await client.get("/api/v1/runs/pay-ann")).json()["contradicted"] == []


@virtual
async def test_people_are_notified_of_it_until_it_is_answered(lab: Lab):
    pays = desk(lab, compensates=True)
    async with standing(lab, agents=[pays]) as stand:
        await bounce(stand, pays)
        reader = stand.app.service.reader
        (one,) = await placed(reader)
        waiting = waiting_of(one, one.tool)
        about = NotifiedItem(waiting.identity, "new")
        line = await line_of(reader, about)
        assert line is not None
        assert "bounced" in line.asks
        assert all(one.startswith(f"beforehand resolve {ITEM} --") for one in line.answers)
        await answer(stand.app.service, ITEM, a.HappenedAnswer(), by="bea")
        assert await line_of(reader, about) is None
        assert await placed(reader) == []
