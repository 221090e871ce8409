"""`POST /api/v1/runs`: what it stores, for whom, and how it refuses. The first test has a real server on loopback."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import httpx2
import pytest

from beforehand import Beforehand, Run, agent
from beforehand.control.queues import steer_queue
from beforehand.engine.environment import SystemRng
from beforehand.model import records as r
from beforehand.policies import RunBudget
from beforehand.queues.limits import DeclaredLimits, QueueLimits, TenantLimits
from beforehand_console.auth.authenticator import Authenticator
from beforehand_console.auth.authorize import Grant
from beforehand_console.auth.passwords import Passwords
from beforehand_console.auth.site import loopback
from beforehand_console.auth.tokens import TokenNote
from beforehand_console.web.app import web
from beforehand_console.web.server import ServerOptions, listen
from tests.unit.console.auth.keeping import Counting
from tests.unit.console.web.stand import Stand
from tests.unit.engine.lab import Lab, virtual

PLACE = "/api/v1/runs"
LIMITS = DeclaredLimits(
    {"mail": QueueLimits(key="order-{ticket.order}", capacity=2)}, tenants={"acme": TenantLimits(2)}
)
TICKET = {"agent": "desk", "input": {"id": "1", "order": "A"}}


@agent(run_id="ticket-{ticket[id]}")
async def desk(run: Run, ticket: dict[str, str]) -> str:
    return ticket["id"]


@contextlib.asynccontextmanager
async def standing(lab: Lab, limits: DeclaredLimits | None = LIMITS) -> AsyncGenerator[Stand]:
    async with lab.app(desk) as app:
        if limits is not None:
            await app.engine.queues.declare(app.engine.journal, limits)
        authenticator = Authenticator(app.engine, Passwords(Counting()))
        yield Stand(app, web(app.service, authenticator, loopback(80)), authenticator, lab)


def test_a_program_submits_to_a_real_server_with_its_token(tmp_path):
    async def story() -> None:
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with Beforehand(str(tmp_path / "desk.db"), agents=[desk], queues=LIMITS, recover=False) as app:
            authenticator = Authenticator(app.engine, Passwords(Counting()))
            await authenticator.accounts.add("bot", [Grant("operator")], by="root")
            note = TokenNote("add", "root", "bot", ends_ms=authenticator.now_ms + 86_400_000)
            token, _ = await authenticator.tokens.add(note, SystemRng())
            serving = asyncio.create_task(listen(app.service, ServerOptions(), "root", told.set_result, signals=False))
            try:
                address = await told
                async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=60) as client:
                    assert (await client.post(PLACE, json=TICKET)).status_code == 403  # no origin, and no token
                    client.headers["authorization"] = f"Bearer {token}"
                    first = await client.post(PLACE, json={**TICKET, "queue": "mail", "tenant": "acme"})
                    again = await client.post(PLACE, json={**TICKET, "queue": "mail", "tenant": "acme"})
            finally:
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving
            assert (first.status_code, first.json()) == (200, {"run": "ticket-1", "queue": "mail", "new": True})
            assert again.json()["new"] is False
            (row,) = await app.engine.journal.runs()
            assert (row.status, row.queue, row.tenant) == ("queued", "mail", "acme")
            assert [state.waiting for state in await app.engine.journal.queues()] == [1]

    asyncio.run(story())


@virtual
async def test_all_options_are_stored_and_the_caller_is_the_giver(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea", Grant("operator")) as client:
        later = "2090-01-01T00:00:00+02:00"
        limits = {"tokens": 50_000, "cost": "2.5 EUR", "then": "stop"}
        body = {
            **TICKET,
            "queue": "mail",
            "priority": 3,
            "at": later,
            "key": "job-7",
            "tenant": "acme",
            "budget": limits,
        }
        assert (await client.post(PLACE, json=body)).json() == {"run": "job-7", "queue": "mail", "new": True}
        found = stand.lab.journal._runs["job-7"]
        assert (found.place.priority, found.place.key, found.listing.tenant) == (3, "order-A", "acme")
        assert found.listing.due_ms == int(datetime.fromisoformat(later).timestamp() * 1000)
        (started,) = stand.lab.of("job-7", r.RunStarted)
        assert (started.by, started.queue) == ("bea", "mail")
        assert started.budget == RunBudget(tokens=50_000, cost="2.5 EUR", then="stop")


@virtual
async def test_a_key_with_another_input_is_refused(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        assert (await client.post(PLACE, json={**TICKET, "key": "k"})).json()["new"]
        other = await client.post(PLACE, json={**TICKET, "key": "k", "input": {"id": "2", "order": "A"}})
        assert (other.status_code, other.json()["error"]) == (409, "ParameterMismatch")
        assert len(await stand.app.engine.journal.runs()) == 1


@virtual
async def test_a_full_queue_and_one_that_is_drained_say_when_to_come_again(lab: Lab):
    async with standing(lab) as stand, await stand.client("bea") as client:
        for name in "12":
            body = {"agent": "desk", "input": {"id": name, "order": "A"}, "queue": "mail"}
            assert (await client.post(PLACE, json=body)).status_code == 200
        full = await client.post(PLACE, json={**body, "input": {"id": "3", "order": "A"}})
        assert (full.status_code, full.json()["error"], full.headers["retry-after"]) == (429, "QueueFull", "5")
        assert full.headers["content-type"] == "application/problem+json"
        assert (await client.post(PLACE, json=body)).json()["new"] is False  # it was submitted before
        await steer_queue(stand.app.engine, "mail", "drain", by="ann")
        drained = await client.post(PLACE, json={**body, "input": {"id": "3", "order": "A"}})
        assert (drained.status_code, drained.json()["error"], drained.headers["retry-after"]) == (
            503, "QueueDraining", "60",
        )  # fmt: skip
        assert "beforehand queues resume mail" in drained.json()["next_step"]
        assert len(await stand.app.engine.journal.runs()) == 2


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "agent": ({"agent": "dsk"}, 404, "has no agent 'dsk'"),
    "system agent": ({"agent": "beforehand:notify"}, 404, "has no agent"),
    "queue": ({"queue": "mial"}, 422, "queue 'mial' does not exist"),
    "tenant": ({"tenant": "acne"}, 422, "tenant 'acne' does not exist"),
    "priority": ({"priority": 10}, 422, "priority=10 is not from -9 to 9"),
    "input": ({"input": [1]}, 422, "this input does not fit the agent desk"),
    "part of the input": ({"input": {"id": 1}}, 422, "this input does not fit the agent desk"),
    "field of the run id": ({"input": {"order": "A"}}, 422, "the run id"),
    "field of the key": ({"queue": "mail", "input": {"id": "1"}}, 422, "the key of queue mail"),
    "key": ({"key": "a/b"}, 422, "cannot name a run"),
    "empty key": ({"key": ""}, 422, "cannot name a run"),
    "time without offset": ({"at": "2030-01-01T00:00:00"}, 422, "the body does not fit"),
    "unknown field": ({"tenat": "acme"}, 422, "the body does not fit"),
    "unknown limit": ({"budget": {"tokens": 5, "efects": 1}}, 422, "the body does not fit"),
    "negative limit": ({"budget": {"effects": -1}}, 422, "the body does not fit"),
    "currency": ({"budget": {"cost": "2.50 EUX"}}, 422, "budget: cost: 'EUX' is not an ISO 4217 code"),
    "negative cost": ({"budget": {"cost": "-1 EUR"}}, 422, "the body does not fit"),
    "broken limit": ({"budget": {"effects": 1.5}}, 422, "the body does not fit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_its_reason_and_nothing_is_stored(case: str):
    change, status, text = REFUSED[case]

    @virtual
    async def story(lab: Lab) -> None:
        async with standing(lab) as stand, await stand.client("bea") as client:
            refused = await client.post(PLACE, json={**TICKET, **change})
            assert refused.status_code == status, refused.text
            assert text in refused.json()["detail"]
            assert await stand.app.engine.journal.runs() == []

    story()


@virtual
async def test_only_operators_everywhere_submit(lab: Lab):
    async with standing(lab, None) as stand:
        for grant in (Grant("viewer"), Grant("answerer"), Grant("operator", queues=("default",))):
            async with await stand.client("vic", grant) as client:
                refused = await client.post(PLACE, json=TICKET)
                assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
                assert "lacks the permission 'submit' for runs of desk" in refused.json()["detail"]
        async with stand.stranger() as nobody:
            assert (await nobody.post(PLACE, json=TICKET)).status_code == 401
        async with await stand.client("bea") as client:
            client.headers["origin"] = "https://evil.example"
            assert (await client.post(PLACE, json=TICKET)).status_code == 403
        assert await stand.app.engine.journal.runs() == []


@agent(run_id="frugal-{ticket[id]}", budget=RunBudget(tokens=100, cost="1.00 EUR", then="ask"))
async def frugal(run: Run, ticket: dict[str, str]) -> str:
    return ticket["id"]


@virtual
async def test_a_submitter_submits_and_sees_its_own_runs_and_nothing_else(lab: Lab):
    async with standing(lab) as stand:
        await stand.authenticator.accounts.add("bot", [Grant("submitter")], by="root")
        await stand.authenticator.accounts.add("ann", [Grant("viewer")], by="root")
        client, viewer = await stand.proven("bot"), await stand.proven("ann")
        assert (await client.post(PLACE, json={**TICKET, "key": "mine"})).status_code == 200
        await stand.app.submit(desk, {"id": "2", "order": "A"}, key="theirs", by="ann")
        assert (await client.get(f"{PLACE}/mine")).status_code == 200
        assert (await client.get(f"{PLACE}/mine/timeline")).status_code == 200
        looks = [one.access for one in await stand.authenticator.log.read("bot") if one.access.deed == "submit"]
        assert len(looks) == 2, "the submission, and the looks once an hour"
        for place in (f"{PLACE}/theirs", f"{PLACE}/theirs/timeline", f"{PLACE}/none", PLACE, "/api/v1/items"):
            assert (await client.get(place)).status_code == 403, place
        assert (await viewer.post(PLACE, json=TICKET)).status_code == 403, "to look is not to submit"
        taken = await client.post(PLACE, json={**TICKET, "key": "theirs"})
        assert taken.status_code == 409
        assert "recorded" not in taken.text, "a key that is taken tells nothing of the run that has it"
        assert (await viewer.get(f"{PLACE}/theirs")).status_code == 200


@virtual
async def test_a_budget_that_is_submitted_is_at_most_the_agent_s(lab: Lab):
    async with lab.app(frugal) as app:
        authenticator = Authenticator(app.engine, Passwords(Counting()))
        stand = Stand(app, web(app.service, authenticator, loopback(80)), authenticator, lab)
        async with await stand.client("bea") as client:
            for number, (budget, held) in enumerate(
                [
                    ({"tokens": 10**12, "then": "stop"}, RunBudget(tokens=100, cost="1.00 EUR")),
                    ({"tokens": 5, "cost": "0.50 EUR"}, RunBudget(tokens=5, cost="0.50 EUR")),
                    ({"effects": 3, "cost": "9 EUR"}, RunBudget(tokens=100, effects=3, cost="1.00 EUR")),
                    ({"cost": "0.01 EUR", "unpriced": "0 EUR"}, RunBudget(tokens=100, cost="0.01 EUR")),
                ]
            ):
                body = {"agent": "frugal", "input": {"id": str(number)}, "budget": budget, "key": f"k-{number}"}
                assert (await client.post(PLACE, json=body)).status_code == 200
                (started,) = stand.lab.of(f"k-{number}", r.RunStarted)
                assert started.budget == held
            body = {"agent": "frugal", "input": {"id": "9"}, "budget": {"cost": "0.10 USD"}}
            refused = await client.post(PLACE, json=body)
            assert (refused.status_code, "in EUR" in refused.json()["detail"]) == (422, True)


@virtual
async def test_a_token_that_is_bound_to_tenants_submits_for_no_other(lab: Lab):
    async with standing(lab) as stand:
        await stand.authenticator.accounts.add("bot", [Grant("submitter")], by="root")
        ends_ms = stand.authenticator.now_ms + 86_400_000
        note = TokenNote("add", "root", "bot", ends_ms=ends_ms, tenants=("acme",))
        secret, made = await stand.authenticator.tokens.add(note, SystemRng())
        assert made.tenants == ("acme",)
        client = stand.stranger(authorization=f"Bearer {secret}")
        for tenant in ("", "other"):
            refused = await client.post(PLACE, json={**TICKET, "queue": "mail", "tenant": tenant})
            assert (refused.status_code, "submits for acme" in refused.json()["known"]) == (403, True)
        assert (await client.post(PLACE, json={**TICKET, "queue": "mail", "tenant": "acme"})).status_code == 200
