"""An approval may require a person who signed in a short time ago: over HTTP, in the engine, and on the command line."""

from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from beforehand import Key, Run, agent, tool
from beforehand.control.service import ControlService
from beforehand.engine.commands import command_post
from beforehand.errors import RunSuspended, SignInNeeded
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.standing_permission import StandingPermission
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand.people.standing_permissions import add_standing
from beforehand.policies import Gate, Require
from beforehand_console.auth.authorize import Grant
from tests.unit.console.web.stand import Stand, standing
from tests.unit.engine.lab import Lab, virtual

PAY = "pay-ann/pay#1"
PAGE = "/inbox/pay-ann/pay%231"
TEN = Require(fresh_sign_in=timedelta(minutes=10), person=True)


def paying(lab: Lab, require: Require = TEN) -> list[Any]:
    @tool(gate=Gate("cents > 5000", require=require), idempotency=Key.forever())
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        return "paid"

    @agent(run_id="pay-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000)

    return [desk]


async def shown(stand: Stand) -> str:
    return (await load_item(stand.app.service.reader, PAY)).digest


async def by_api(stand: Stand, client: httpx2.AsyncClient, kind: str = "approve", **fields: object) -> httpx2.Response:
    body = {"item": PAY, "shown": await shown(stand), "answer": {"type": kind, **fields}}
    return await client.post("/api/v1/answers", json=body)


async def by_page(stand: Stand, client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.post(PAGE, data={"type": "approve", "shown": await shown(stand), "hours": "4"})


@virtual
async def test_an_old_session_signs_in_again_and_then_approves(lab: Lab):
    async with standing(lab, agents=paying(lab)) as stand:
        await stand.authenticator.accounts.add("bea", [Grant("answerer")], by="root")
        client = await stand.signed_in("bea")
        assert "in the last 600 s" in (await client.get(PAGE)).text, "the page says what it takes"
        await lab.pass_time(hours=1)
        refused = await by_api(stand, client)
        assert (refused.status_code, refused.json()["error"]) == (403, "SignInNeeded")
        assert "in the last 600 s" in refused.json()["detail"]
        sent_on = await by_page(stand, client)
        assert (sent_on.status_code, sent_on.headers["location"].startswith("/sign-in?next=%2Finbox%2F")) == (303, True)
        assert "takes a fresh sign-in" in (await client.get(sent_on.headers["location"])).text
        assert lab.sent == []
        noted = [one.access for one in await stand.authenticator.log.read("bea") if one.access.about == PAY]
        assert [one.allowed for one in noted] == [False], "on record, once an hour"
        again = await stand.signed_in("bea")
        assert (await by_page(stand, again)).status_code == 303
        await stand.app.resume("pay-ann")
    assert lab.sent == ["pay 9000"]


@virtual
async def test_a_token_is_no_person_and_a_no_takes_no_sign_in(lab: Lab):
    async with standing(lab, agents=paying(lab, Require(person=True))) as stand:
        await stand.authenticator.accounts.add("bea", [Grant("admin")], by="root")
        token = await stand.proven("bea")
        for refused in (await by_api(stand, token), await by_api(stand, token, "stand_in", result="paid")):
            assert (refused.status_code, "no token" in refused.json()["detail"]) == (403, True)
        bulk = {"items": [{"item": PAY, "shown": await shown(stand)}], "answer": {"type": "approve"}}
        assert (await token.post("/api/v1/answers/bulk", json=bulk)).status_code == 403
        assert (await by_api(stand, token, "decline", why="no")).status_code == 200
    assert lab.sent == []


@pytest.mark.parametrize("via", ["", "typed", "token", "oidc", "proxy"])
@virtual
async def test_a_name_that_was_typed_or_proven_without_a_password_is_no_fresh_sign_in(lab: Lab, via: str):
    """Neither where it is said, nor where another program put it into the ledger."""
    async with standing(lab, agents=paying(lab)) as stand:
        with pytest.raises(SignInNeeded, match="still waits"):
            await ControlService(stand.app.engine, via=via).approve(PAY, by="bea")
        said = r.ApprovalGranted(step="pay#1", approval=await shown(stand), by="bea")
        word = Command("approve", "bea", record=said, via=via)
        await stand.app.engine.journal.commit(command_post("pay-ann", msgspec.json.encode(word)))
        with pytest.raises(RunSuspended):
            await stand.app.resume("pay-ann")
    assert lab.sent == []
    assert "it takes a person who signed in" in lab.of("pay-ann", r.CommandApplied)[-1].refused


@virtual
async def test_a_standing_permission_does_not_replace_the_sign_in(lab: Lab):
    (desk,) = paying(lab)
    async with lab.app(desk) as app:
        await add_standing(app.engine, StandingPermission("", "pay", "bea", 4_000_000_000_000))
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == []


def silent(lab: Lab) -> list[Any]:
    """The service never answers, so that what was approved is unknown."""

    @tool(gate=Gate("cents > 5000", require=Require(person=True)))
    async def pay(cents: int) -> str:
        lab.sent.append(f"pay {cents}")
        raise TimeoutError("no answer")

    @agent(run_id="pay-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(9000)

    return [desk]


@virtual
async def test_who_may_not_approve_may_not_say_what_happened(lab: Lab):
    """Otherwise one yes is good for any number of sends: the proposer's own token orders the next."""
    (desk,) = silent(lab)
    async with standing(lab, agents=[desk], begun=()) as stand:
        with pytest.raises(RunSuspended):
            await stand.app.run(desk, "ann", by="ann")
        accounts = stand.authenticator.accounts
        for name in ("ann", "bea", "cid"):
            await accounts.add(name, [Grant("operator")], by="root")
        token, ann = await stand.proven("bea"), await stand.signed_in("ann")
        bea, cid = await stand.signed_in("bea"), await stand.signed_in("cid")
        assert (await by_api(stand, cid)).status_code == 200
        with pytest.raises(RunSuspended):
            await stand.app.resume("pay-ann")
        assert lab.sent == ["pay 9000"]
        orders = {"type": "did_not_happen", "then": "retry", "evidence": "trust me"}
        for client in (token, ann):
            refused = await by_api(stand, client, **orders)
            assert refused.status_code == 403, refused.text
        assert (await by_api(stand, bea, **{**orders, "evidence": ""})).status_code == 409
        assert (await by_api(stand, bea, **orders)).status_code == 200
        with pytest.raises(RunSuspended):
            await stand.app.resume("pay-ann")
        assert lab.sent == ["pay 9000"], "the order takes a yes of its own"
        page = (await cid.get(PAGE)).text
        assert "says that it did not happen, and asks for one more attempt: trust me" in page
        assert "nothing is sent again, and what happened stays unknown" in page
        assert (await by_api(stand, cid)).status_code == 200
        with pytest.raises(RunSuspended):
            await stand.app.resume("pay-ann")
    assert lab.sent == ["pay 9000", "pay 9000"]


@virtual
async def test_an_item_says_which_right_nobody_has(lab: Lab):
    (desk,) = silent(lab)
    async with standing(lab, agents=[desk], begun=()) as stand:
        with pytest.raises(RunSuspended):
            await stand.app.run(desk, "ann", by="ann")
        accounts = stand.authenticator.accounts
        await accounts.add("ann", [Grant("operator")], by="root")
        await accounts.add("bea", [Grant("operator", tools=("mail",))], by="root")
        client = await stand.signed_in("ann")
        says = "no account can answer this: it takes the role answerer for pay"
        assert says in (await client.get(PAGE)).text
        await accounts.add("cid", [Grant("answerer")], by="root")
        assert says not in (await client.get(PAGE)).text


@virtual
async def test_an_answerer_is_enough_where_a_run_was_handed_over(lab: Lab):
    @agent(run_id="trip-{name}")
    async def trip(run: Run, name: str) -> str:
        return str(await run.hand_off("travel", why="signatures"))

    async with standing(lab, agents=[trip]) as stand:
        await stand.authenticator.accounts.add("cid", [Grant("answerer")], by="root")
        (item,) = await items(stand.app.service.reader)
        page = await (await stand.signed_in("cid")).get(f"/inbox/{quote(item.item)}")
        assert "handoff" in page.text
        assert "no account can answer this" not in page.text
