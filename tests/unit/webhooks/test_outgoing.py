"""Webhooks out: durable with what they tell, one id on every try, for days, and never to an inside address."""

import base64
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from beforehand import Beforehand, NotSent, Run, agent, tool
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.model.addresses import is_public
from beforehand.model.webhooks import ABOUT_RUNS, Kind, Note
from beforehand.people.items import items
from beforehand.testing import operation
from beforehand.webhooks.http_post import post
from beforehand.webhooks.outgoing import EndpointStatus, Webhooks, checked, endpoint_statuses
from tests.unit.engine.lab import DAYS, Lab, virtual
from tests.unit.engine.test_crashes import DiesAt
from tests.unit.webhooks.receiver import DIES, Came, Receiver, receiving


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    value = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    monkeypatch.setenv("OPS_SECRET", value)
    return value


@agent(run_id="r-{name}", tools=())
async def greet(run: Run, name: str) -> str:
    return f"hello {name}"


@tool
async def book(room: str) -> str:
    raise RuntimeError("the line broke")


@agent(run_id="s-{name}", tools=[book])
async def stay(run: Run, name: str) -> str:
    return await book(name)


async def tell(app: Beforehand, url: str, *kinds: Kind, name: str = "ops") -> None:
    await Webhooks(app.service).add(
        Note("add", name, "bea", url=url, secrets=("OPS_SECRET",), kinds=kinds or ABOUT_RUNS)
    )


async def state(app: Beforehand) -> EndpointStatus:
    (one,) = await endpoint_statuses(app.service.reader)
    return one


def fits(came: Came, secret: str) -> bool:
    headers, body = came
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    return headers["webhook-signature"] == Webhook(secret).sign(headers["webhook-id"], at, body.decode())


@virtual
async def test_a_finished_run_is_told_once_signed_and_without_its_result(lab: Lab):
    secret = os.environ["OPS_SECRET"]
    with receiving() as ops:
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            assert await app.run(greet, "ann") == "hello ann"
            await lab.pass_time(minutes=1)
            assert (await state(app)).delivered == 1
    (came,) = ops.came
    assert fits(came, secret)
    body = json.loads(came[1])
    assert body["type"] == "run.completed"
    assert body["data"] == {"run": "r-ann", "agent": "greet", "reason": "", "waits": []}
    assert b"hello" not in came[1]


@virtual
async def test_every_try_has_the_same_id_and_bytes_over_days_with_growing_pauses(lab: Lab):
    with receiving() as ops:
        ops.answers = [500, DIES, 302, 404, 503, 500, 500, 500, 500, 500, 500, 500, 500, 204]
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(days=1)
            assert (await state(app)).delivered == 1
    assert len(ops.came) == 14
    assert len(set(ops.ids)) == 1, "a receiver that acted and then died knows it again"
    assert ops.acted == set(ops.ids)
    assert len({body for _, body in ops.came}) == 1
    times = [int(headers["webhook-timestamp"]) for headers, _ in ops.came]
    assert times[-1] - times[0] > 3600, "its schedule goes on for hours"
    assert len({headers["webhook-signature"] for headers, _ in ops.came}) == len(set(times)), "each time is signed"


@virtual
async def test_a_run_that_waits_for_a_person_is_told_once_however_often_it_comes_to_rest(lab: Lab):
    with receiving() as ops:
        async with lab.app(stay, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            for _ in range(3):
                with pytest.raises(RunSuspended):
                    await app.run(stay, "ann")
                await lab.pass_time(minutes=1)
            await app.service.resolve("s-ann/book#1", "retry", by="bea")
            await lab.pass_time(minutes=1)
    kinds = Counter(json.loads(body)["type"] for _, body in ops.came)
    assert kinds == {"run.waits_for_person": 2}, "asked again after another attempt, it is news again"
    (wait,) = json.loads(ops.came[0][1])["data"]["waits"]
    assert wait["answer_with"][0].startswith("beforehand resolve s-ann/book#1")


@virtual
async def test_410_gone_ends_it_at_once_and_what_stopped_is_shown(lab: Lab):
    with receiving() as ops:
        ops.answers = [410]
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(minutes=1)
            gone = await state(app)
            await app.run(greet, "bob")
            await lab.pass_time(minutes=1)
            assert len(ops.came) == 1, "nothing is sent to it any more"
            await Webhooks(app.service).change("ops", "enable", by="bea")
            ops.answers = [204]
            await app.run(greet, "cid")
            await lab.pass_time(minutes=1)
            back = await state(app)
    assert gone.state == "disabled: it answered 410 Gone"
    assert len(gone.given_up) == 1
    assert (back.state, back.delivered) == ("enabled", 1)


@virtual
async def test_an_endpoint_that_takes_nothing_for_days_is_given_up_and_disabled(lab: Lab):
    with receiving() as ops:
        ops.answers = [500]
        async with lab.app(greet, recover=True, private_webhooks=True, **DAYS) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(days=6)
            given_up = await state(app)
            assert await items(app.service.reader) == [], "a notice that was not taken is not a question to a person"
    assert given_up.state.startswith("disabled: given up")
    assert "it answered 500" in given_up.state
    assert 10 < len(ops.came) <= 24
    times = [int(headers["webhook-timestamp"]) for headers, _ in ops.came]
    assert timedelta(seconds=times[-1] - times[0]) > timedelta(days=1)


@pytest.mark.deep
@virtual
async def test_one_notice_that_is_never_taken_does_not_disable_an_endpoint_that_takes_others(lab: Lab):
    with receiving() as ops:
        take = ops.take

        def picky(headers: dict[str, str], body: bytes) -> int:
            take(headers, body)
            return 400 if b"r-bad" in body else 204

        ops.take = picky  # type: ignore[method-assign]  # a receiver that answers by what it is told
        async with lab.app(greet, recover=True, private_webhooks=True, **DAYS) as app:
            await tell(app, ops.url)
            await app.run(greet, "bad")
            for day in range(6):
                await lab.pass_time(days=1)
                await app.run(greet, f"good{day}")
            found = await state(app)
    assert (found.state, len(found.given_up)) == ("enabled", 1)
    assert found.delivered >= 5


@virtual
async def test_a_notice_survives_whoever_dies_on_the_way(lab: Lab):
    """Killed right after the run's end is durable, after the notice became a run, and after the receiver acted."""

    with receiving() as ops:
        first = lab.make(greet, private_webhooks=True)
        process = lab.processes[-1]
        await first.open()
        await tell(first, ops.url)
        await first.run(greet, "ann")
        await lab.bury(first, process)  # no process looked for the notice yet
        assert ops.came == []
        second = lab.make(greet, private_webhooks=True)
        process = lab.processes[-1]
        await second.open()
        await second.run_housekeeping()
        await lab.bury(second, process)  # it is a run now, and no process drove it
        assert ops.came == []
        crash = DiesAt("after_send", 1)
        third = lab.make(greet, private_webhooks=True, crash=crash, recover=True)
        process = crash.process = lab.processes[-1]
        await third.open()
        await lab.pass_time(seconds=6)
        await lab.bury(third, process)
        assert len(ops.came) == 1
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await lab.pass_time(minutes=5)
            assert (await state(app)).delivered == 1
    assert len(ops.came) == 2
    assert len(set(ops.ids)) == 1, "the receiver had acted, and can tell"


@virtual
async def test_two_processes_that_look_at_once_send_one_run(lab: Lab):
    with receiving() as ops:
        async with (
            lab.app(greet, recover=True, private_webhooks=True) as app,
            lab.app(greet, recover=True, private_webhooks=True),
            lab.app(greet, recover=True, private_webhooks=True),
        ):
            await tell(app, ops.url)
            for name in ("ann", "bob", "cid"):
                await app.run(greet, name)
            await lab.pass_time(minutes=1)
    assert len(ops.came) == len(set(ops.ids)) == 3


@virtual
async def test_only_what_an_endpoint_asked_for_and_what_happened_since_is_told(lab: Lab):
    with receiving() as ops, receiving() as late:
        async with lab.app(greet, stay, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url, "run.waits_for_person")
            await app.run(greet, "ann")
            with pytest.raises(RunSuspended):
                await app.run(stay, "ann")
            await tell(app, late.url, name="late")
            await lab.pass_time(minutes=1)
    assert [json.loads(body)["type"] for _, body in ops.came] == ["run.waits_for_person"]
    assert late.came == []


@virtual
async def test_a_dead_receiver_does_not_hold_up_another(lab: Lab):
    with receiving() as dead, receiving() as well:
        dead.answers = [500]
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, dead.url, name="dead")
            await tell(app, well.url, name="well")
            for number in range(20):
                await app.run(greet, f"n{number}")
            await lab.pass_time(minutes=2)
    assert len(set(well.ids)) == len(well.came) == 20


@virtual
async def test_a_missing_secret_is_waited_for_and_never_sent_without(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    secret = os.environ["OPS_SECRET"]
    monkeypatch.delenv("OPS_SECRET")
    with receiving() as ops:
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(seconds=20)
            assert ops.came == []
            monkeypatch.setenv("OPS_SECRET", secret)
            await lab.pass_time(hours=1)
    assert len(ops.came) == 1
    assert secret.encode() not in lab.everything()


@virtual
async def test_retry_after_is_kept(lab: Lab):
    with receiving() as ops:
        ops.answers, ops.headers = [429, 204], {"Retry-After": "7200"}
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(hours=3)
    first, second = (int(headers["webhook-timestamp"]) for headers, _ in ops.came)
    assert second - first >= 7200


@virtual
async def test_models_are_not_shown_the_senders_and_cannot_call_them(lab: Lab):
    @agent(run_id="m-{name}", tools=[book])
    async def chat(run: Run, name: str) -> list[str]:
        shown = [one["name"] for one in run.tools.schemas()]
        called = await run.call("webhook:ops", {"body": "{}"})
        return [*shown, called.code]

    async with lab.app(chat) as app:
        assert await app.run(chat, "ann") == ["book", "unknown_tool"]


@virtual
async def test_addresses_inside_are_refused_when_given_and_when_used(lab: Lab):
    with receiving() as ops:
        async with lab.app(greet, recover=True) as app:
            with pytest.raises(UsageError, match="is a private or unencrypted address"):
                await tell(app, ops.url)
        async with lab.app(greet, recover=True, private_webhooks=True) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
        async with lab.app(greet, recover=True) as app:  # a process that is not allowed to
            await lab.pass_time(minutes=1)
            assert len((await state(app)).waiting) == 1
    assert ops.came == []
    (run,) = (run for run in lab.journal._runs if run.startswith("webhook-"))
    ends = lab.of(run, r.AttemptEnded)
    assert {(ended.end.kind) for ended in ends} == {"not_sent"}
    assert "is a private address" in ends[0].end.why


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%1",
     "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "ff02::1"],
)  # fmt: skip
def test_what_leads_inside(address: str):
    assert not is_public(address)


def test_what_leads_outside():
    assert is_public("8.8.8.8")
    assert is_public("2001:4860:4860::8888")


@pytest.mark.parametrize(
    "url",
    ["http://example.com/", "https://localhost/", "https://127.0.0.1/", "https://[::1]/", "ftp://example.com/",
     "https://user:word@example.com/", "https:///nowhere", "https://example.com/#part", "https://exam ple.com/",
     "https://example.com:99999/", "https://printer.local/", "https://example.com/\u00fc"],
)  # fmt: skip
def test_bad_addresses_are_refused(url: str):
    with pytest.raises(UsageError):
        checked(Note("add", "ops", "bea", url=url, secrets=("X",)), private=False)


def test_an_endpoint_has_a_name_and_a_secret():
    assert checked(Note("add", "ops", "bea", url="https://example.com/x?y=1", secrets=("X",)), private=False)
    for note in (
        Note("add", "a-b", "bea", url="https://example.com"),
        Note("add", "ops", "b", url="https://example.com"),
    ):
        with pytest.raises(UsageError):
            checked(note, private=False)


def test_nothing_is_sent_to_a_name_that_leads_nowhere_or_a_port_that_is_closed(receiver: Receiver):
    with operation():
        with pytest.raises(NotSent, match="cannot be reached"):
            post("http://127.0.0.1:1/", b"{}", {}, private=True)
        with pytest.raises(NotSent, match="cannot be resolved"):
            post(f"http://{'a' * 64}.example.com/", b"{}", {}, private=True)
        with pytest.raises(NotSent, match="is a private address"):
            post(receiver.url, b"{}", {}, private=False)
        with pytest.raises(NotSent, match="cannot be reached"):
            post(receiver.url.replace("http://", "https://"), b"{}", {}, private=True)
    assert receiver.came == []


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


@pytest.mark.deep
@virtual
async def test_what_was_given_up_is_sent_again_under_its_old_id_when_somebody_orders_it(lab: Lab):
    slow = {"recover_every_ms": 60_000, "poll_ms": 60_000}
    with receiving() as ops:
        ops.answers = [500]
        async with lab.app(greet, recover=True, private_webhooks=True, **slow) as app:
            await tell(app, ops.url)
            await app.run(greet, "ann")
            await lab.pass_time(days=6)
            assert len((await state(app)).given_up) == 1
            orders = Webhooks(app.service)
            with pytest.raises(UsageError, match="is disabled"):
                await orders.resend("ops", by="bea")
            await orders.change("ops", "enable", by="bea")
            assert await orders.resend("ops", by="bea") == 1
            await lab.pass_time(minutes=10)
            again = await state(app)
            assert len(again.given_up) == 1, "it was tried once more, and not taken"
            ops.answers = [204]
            await orders.resend("ops", by="bea")
            await lab.pass_time(minutes=10)
            back = await state(app)
    assert (back.delivered, back.given_up) == (1, [])
    assert len(set(ops.ids)) == 1
