"""Secrets and redacted arguments: not one byte of them reaches the journal, and they are never guessed."""

import secrets
from datetime import timedelta

import pytest

from holdfast import Key, Run, Secret, agent, current_operation, tool
from holdfast.errors import ReplayDiverged, RunSuspended
from tests.unit.engine.lab import Lab, virtual


@virtual
async def test_a_secret_is_resolved_where_it_is_sent_and_never_stored(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    value = secrets.token_hex(16)
    monkeypatch.setenv("PAYMENTS_KEY", value)

    @tool
    async def charge(card: Secret, cents: int) -> str:
        lab.sent.append(card.reveal())
        return "ok"

    @tool(effect="read")
    async def balance(card: Secret) -> int:
        return len(card.reveal())

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> int:
        await charge(Secret("payments-key"), 5)
        return await balance(Secret("payments-key"))

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == len(value)
    assert lab.sent == [value]
    assert value.encode() not in lab.everything()
    assert b"payments-key" in lab.everything()


@virtual
async def test_redacted_arguments_are_compared_and_never_stored(lab: Lab):
    card, other = secrets.token_hex(8), secrets.token_hex(8)
    cards = [card, other]

    @tool(redact={"card"})
    async def charge(card: str, cents: int) -> str:
        lab.sent.append(card)
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await charge(cards[0], 5)
        await run.sleep(timedelta(hours=1))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        cards.pop(0)
        await lab.pass_time(hours=1)
        with pytest.raises(ReplayDiverged) as diverged:
            await app.run(desk, "ann")
    assert lab.sent == [card]
    assert card.encode() not in lab.everything()
    assert other.encode() not in lab.everything()
    assert card not in diverged.value.difference


@virtual
async def test_what_cannot_be_executed_from_its_record_is_not_retried_by_recovery_alone(lab: Lab):
    card = secrets.token_hex(8)

    @tool(redact={"card"}, idempotency=Key.forever())
    async def charge(card: str) -> str:
        lab.sent.append(card)
        assert current_operation().key
        if len(lab.sent) == 1:
            await lab.pass_time(hours=5)
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge(card)

    async with lab.app(desk) as app:
        app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ok"
    assert lab.sent == [card, card]
    assert card.encode() not in lab.everything()


@virtual
async def test_a_held_secret_works_in_this_process_and_leaves_no_trace(lab: Lab):
    value = secrets.token_hex(16)

    @tool
    async def charge(card: Secret) -> str:
        lab.sent.append(card.reveal())
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge(Secret.of(value, name="card"))

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "ok"
    assert lab.sent == [value]
    assert value.encode() not in lab.everything()


@virtual
async def test_an_open_effect_whose_arguments_are_gone_waits_for_its_code(lab: Lab):
    card = secrets.token_hex(8)
    reached: list[bool] = []

    @tool(redact={"card"}, idempotency=Key.forever())
    async def charge(card: str) -> str:
        lab.sent.append(card)
        assert current_operation().key
        if len(lab.sent) == 1:
            await lab.pass_time(hours=5)
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        if reached:
            await run.wait_for("go")
        reached.append(True)
        return await charge(card)

    async with lab.app(desk) as app:
        app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="its arguments are not stored"):
            await app.run(desk, "ann")
        assert lab.sent == [card]
