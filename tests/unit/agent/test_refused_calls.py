"""Calls that were refused before anything was recorded of them: what a model was told is told again on replay."""

from datetime import timedelta

import pytest

from beforehand import Key, Outcome, Run, agent, current_operation, tool
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

SECOND = timedelta(seconds=1)


def shop(lab: Lab):
    """What a model may send with, and the same tool after its author has loosened what it takes."""

    @tool
    async def send(to: str) -> str:
        lab.sent.append(to)
        return f"sent to {to}"

    @tool(name="send")
    async def loose(to: str | int) -> str:
        lab.sent.append(f"loosely to {to}")
        return f"sent to {to}"

    @tool
    async def fax(to: str) -> str:
        lab.sent.append(f"fax to {to}")
        return "faxed"

    return send, loose, fax


CALLS = [
    ("fax", {"to": "ann"}),
    ("send", {"to": "ann"}),
    ("send", {"to": 7}),
    ("send", "no json"),
    ("no such/tool#~\n", {}),
    ("send", {"to": "cid"}),
]


def model(*tools: object):
    @agent(run_id="r-{name}", tools=tools)
    async def desk(run: Run, name: str) -> list[str]:
        told: list[Outcome[object]] = []
        for tool_name, arguments in CALLS:
            told.append(await run.call(tool_name, arguments))
        await run.sleep(5 * SECOND)
        told.append(await run.call("send", {"to": "dan"}))
        return [f"{outcome.status} {outcome.code}".strip() for outcome in told]

    return desk


EXPECTED = [
    "failed unknown_tool", "succeeded", "failed bad_arguments", "failed bad_arguments", "failed unknown_tool",
    "succeeded", "succeeded",
]  # fmt: skip


@virtual
async def test_a_refusal_is_told_again_although_the_call_would_be_taken_now(lab: Lab):
    send, loose, fax = shop(lab)
    app = lab.make(model(send))
    process = lab.processes[-1]
    await app.open()
    app.start(app.agents["desk"], "x")
    await lab.pass_time(seconds=2)
    await lab.bury(app, process)
    later = model(loose, fax)
    async with lab.app(later) as app:
        assert await app.run(later, "x") == EXPECTED
    assert lab.sent == ["ann", "cid", "loosely to dan"], "what was refused is not sent by a replay"
    refused = [record for record in lab.of("r-x", r.ValueRecorded) if record.what == "refused"]
    assert [record.step for record in refused] == ["call:fax#1", "call:send#2", "call:send#3", "call:?#1"]


@virtual
async def test_a_call_that_was_taken_and_would_be_refused_now_is_a_divergence(lab: Lab):
    send, _, fax = shop(lab)
    app = lab.make(model(send, fax))
    process = lab.processes[-1]
    await app.open()
    app.start(app.agents["desk"], "x")
    await lab.pass_time(seconds=2)
    await lab.bury(app, process)
    later = model(send)
    async with lab.app(later) as app:
        with pytest.raises(Exception, match=r"fax|where the record has|did not come again"):
            await app.run(later, "x")
    assert lab.sent == ["fax to ann", "ann", "cid"]


@virtual
async def test_steps_keep_their_names_behind_a_refusal_that_had_taken_one(lab: Lab):
    """An irreversible call inside a transaction takes its step before it is refused."""

    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        lab.sent.append(f"{to} {current_operation().key[:0]}".strip())
        return to

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        codes: list[str] = []
        async with run.transaction("t"):
            codes.append((await run.call("send", {"to": "ann"})).code)
        codes.append((await run.call("send", {"to": "bob"})).status)
        await run.sleep(5 * SECOND)
        codes.append((await run.call("send", {"to": "cid"})).status)
        return codes

    app = lab.make(desk)
    process = lab.processes[-1]
    await app.open()
    app.start(desk, "x")
    await lab.pass_time(seconds=2)
    await lab.bury(app, process)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["must_hold", "succeeded", "succeeded"]
    assert lab.sent == ["bob", "cid"]
