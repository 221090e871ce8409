"""Secrets and redacted arguments: not one byte of them reaches the journal, and they are never guessed."""

import base64
import json
import secrets
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

import msgspec
import pytest

from beforehand import Happened, Key, Operation, Run, Secret, agent, current_operation, tool
from beforehand.engine.masking import REMEMBERED, Masks
from beforehand.errors import Ambiguous, BeforehandError, NotSent, Rejected, ReplayDiverged, ResultLost, RunSuspended
from beforehand.model.contract import Effect
from beforehand.people.items import items
from beforehand.policies import Retry
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


@pytest.mark.parametrize("effect", ["write", "read"])
@virtual
async def test_the_names_of_reported_facts_are_masked(lab: Lab, monkeypatch: pytest.MonkeyPatch, effect: Effect):
    monkeypatch.setenv("PAYMENTS_KEY", value := secrets.token_hex(8))

    @tool(effect=effect)
    async def charge(key: Secret) -> str:
        current_operation().report(f"stock of {key.reveal()}", key.reveal())
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> dict[str, object]:
        await charge(Secret("payments-key"))
        return run.facts.values()

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == {"stock of [masked]": "[masked]"}
    assert value.encode() not in lab.everything()


@virtual
async def test_the_names_of_pending_parts_are_masked(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAYMENTS_KEY", value := secrets.token_hex(8))

    @tool
    async def charge(key: Secret) -> str:
        current_operation().pending(f"mail to {key.reveal()}", within=timedelta(hours=2))
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        await charge(Secret("payments-key"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match=r"mail to \[masked\]"):
            await app.run(desk, "ann")
    assert value.encode() not in lab.everything()


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


@virtual
async def test_a_compensation_whose_arguments_are_not_stored_gets_none_that_were_masked(lab: Lab):
    card, given = secrets.token_hex(8), list[str]()

    @tool(redact={"card"}, idempotency=Key.forever(stores="all"))
    async def charge(card: str) -> str:
        return current_operation().key and "paid"

    @charge.compensate(restores=True)
    @tool(idempotency=Key.forever(stores="all"))
    async def refund(operation: Operation[str], card: str) -> None:
        given.append(card)

    @agent(run_id="r-{name}", tools=[charge])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("t") as boundary:
            await charge(card)
            boundary.abort("no")
        return "never"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="t/charge#1/undo: its arguments are not stored"):
            await app.run(desk, "ann")
        asked = [item.item for item in await items(app.service.reader)]
        assert asked == ["r-ann/t", "r-ann/t/charge#1/undo"], "no code brings them"
    assert given == []


# --- where a value turns up unintended ---------------------------------------------------


def awkward() -> str:
    """A value that every encoding spells in another way."""
    return secrets.token_hex(6) + '/"+é\\' + secrets.token_hex(6)


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLED: dict[str, Callable[[str], str]] = {
    "plain": str,
    "repr": repr,
    "in JSON": json.dumps,
    "in an address": lambda value: f"https://example.com/?key={quote(value, safe='')}&page=1",
    "in base64": base64_of,
    "as basic authentication": lambda value: "Authorization: Basic " + base64_of(f"shop:{value}"),
    "as a bearer in base64": lambda value: base64_of(f"id:{value}:x"),
    "in hexadecimal digits": lambda value: value.encode().hex(),
    "at the cut end": lambda value: "x" * 470 + value,
}


def traces(value: str) -> list[bytes]:
    """What of a value must not be in any file: its spellings, and long parts of it."""
    spelled = [value, json.dumps(value)[1:-1], quote(value, safe=""), base64_of(value)[:-4], value.encode().hex()]
    return [one.encode() for one in spelled] + [value[:10].encode(), value[-10:].encode()]


def leaked(lab: Lab, value: str) -> list[bytes]:
    return [trace for trace in traces(value) if trace in lab.everything()]


@pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED)
@pytest.mark.parametrize("kind", [ValueError, ConnectionError, Rejected, NotSent, Ambiguous])
@virtual
async def test_an_exception_of_a_tool_keeps_neither_a_secret_nor_a_redacted_argument(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: type[Exception], spelled: Callable[[str], str]
):
    key, card = awkward(), awkward()
    monkeypatch.setenv("PAYMENTS_KEY", key)

    @tool(redact={"card"}, retry=Retry(attempts=1))
    async def charge(card: str, key: Secret, cents: int) -> str:
        cause = OSError(f"the line {spelled(key.reveal())} broke")
        raise kind(f"{spelled(card)} {spelled(key.reveal())}") from cause

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await charge(card, Secret("payments-key"), 5)

    async with lab.app(desk) as app:
        with pytest.raises(BeforehandError) as told:
            await app.run(desk, "ann")
    assert card not in str(told.value)
    assert key not in str(told.value)
    assert (leaked(lab, key), leaked(lab, card)) == ([], [])
    assert b"[masked]" in lab.everything()


@virtual
async def test_agent_code_that_raises_with_a_value_leaves_it_in_no_record(lab: Lab):
    card, held = awkward(), awkward()

    @tool(redact={"card"})
    async def charge(card: str, key: Secret) -> str:
        key.reveal()
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await charge(card, Secret.of(held, name="held"))
        raise ExceptionGroup(f"two with {card}", [ValueError(f"bad {card!r} {held}")]) from KeyError(held)

    async with lab.app(desk) as app:
        with pytest.raises(Exception, match="two with"):
            await app.run(desk, "ann")
        shown = msgspec.json.encode([record async for _, record in app.service.reader.records("r-ann")])
    assert (leaked(lab, card), leaked(lab, held)) == ([], [])
    assert card.encode() not in shown
    assert b"ExceptionGroup: two with [masked]" in shown


@virtual
async def test_a_result_that_echoes_what_it_was_given_is_masked_in_this_pass_and_in_the_next(lab: Lab):
    card, number, seen = secrets.token_hex(8), 4_000_000_000_000_000 + secrets.randbelow(10**15), list[object]()

    @tool(redact={"card", "number"})
    async def charge(card: str, number: int) -> dict[str, object]:
        return {"card": card, "last": card[-4:], "line": f"charged {card} twice", card: [number, 7], "ok": True}

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> object:
        seen.append(await charge(card, number))
        await run.sleep(timedelta(hours=1))
        return seen[-1]

    masked = {"card": "[masked]", "last": card[-4:], "line": "charged [masked] twice", "[masked]": ["[masked]", 7]}
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "ann") == {**masked, "ok": True}
    assert seen == [{**masked, "ok": True}] * 2
    assert card.encode() not in lab.everything()
    assert str(number).encode() not in lab.everything()


@virtual
async def test_a_result_that_no_longer_fits_is_lost_and_its_effect_counts(lab: Lab):
    number = 4_000_000_000_000_000 + secrets.randbelow(10**15)

    @tool(redact={"number"})
    async def charge(number: int) -> int:
        lab.sent.append("charge")
        return number

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        try:
            return str(await charge(number))
        except ResultLost:
            return "lost"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "lost"
    assert lab.sent == ["charge"]
    assert str(number).encode() not in lab.everything()


@virtual
async def test_the_result_of_a_run_and_what_a_verifier_answers_are_masked(lab: Lab):
    card = secrets.token_hex(8)

    @tool(redact={"card"})
    async def charge(card: str) -> str:
        raise ConnectionError("the line broke")

    @charge.verify(settle_window=timedelta(0))
    async def look(operation: Operation[str], card: str) -> Happened:
        return Happened(f"receipt of {card}", evidence=f"found {card}")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        assert await charge(card) == "receipt of [masked]"
        return f"charged {card}"

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "charged [masked]"
    assert card.encode() not in lab.everything()
    assert b"found [masked]" in lab.everything()


@virtual
async def test_a_value_that_another_tool_reads_is_not_masked_since_it_would_be_sent(lab: Lab):
    card = secrets.token_hex(8)

    @tool(effect="read")
    async def card_of(name: str) -> str:
        return card

    @tool(redact={"card"})
    async def charge(card: str) -> str:
        lab.sent.append(card)
        return "ok"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> None:
        for _ in range(2):
            await charge(await card_of(name))

    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == [card, card]


def test_many_values_are_remembered_up_to_a_limit_and_short_ones_are_not():
    masks = Masks()
    values = [secrets.token_hex(8) for _ in range(REMEMBERED + 10)]
    for value in values:
        masks.redact({"card": value, "cvc": "123", "ok": True, "n": None}, ("card", "cvc", "ok", "n"))
    assert masks.text(f"{values[-1]} {values[10]} 123 True") == "[masked] [masked] 123 True"
    forgotten = f"{values[0]}."  # at the end of a text the beginning of any other value would be masked, too
    assert masks.text(forgotten) == forgotten
