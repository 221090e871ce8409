"""A claim that nothing proves: the model is told, then `on_error`, then a person, and the model hears the person."""

from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import ClaimUnproven
from beforehand.loop import ModelCall, ModelLoop
from beforehand.model import records as r
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab, virtual

MAIL = ModelCall("m1", "send_email", '{"to": "ann"}')
NOT_PROVEN = "Not proven: no send_email of this run succeeded and is still in effect."


class Desk:
    """An agent that has to send a mail, and the model that it leaves this to."""

    def __init__(self, lab: Lab, *script: Any, on_error: Any = None, before: ScriptedModel | None = None) -> None:
        self.model = ScriptedModel(*script)

        @tool(idempotency=Key.forever())
        async def send_email(to: str) -> str:
            _ = current_operation().key
            lab.sent.append(to)
            return "queued"

        @agent(run_id="r-{name}", tools=[send_email], requires=[send_email], on_error=on_error)
        async def desk(run: Run, name: str) -> str:
            if before is not None:
                await ModelLoop(before)(run, "What does the customer want?")
            return await ModelLoop(self.model)(run, f"Mail {name}.")

        self.agent = desk

    def told(self) -> list[str]:
        """The texts of people and of the runtime in the last question."""
        return [one.text for one in self.model.asked[-1].messages if one.role == "user"][1:]


@virtual
async def test_a_model_is_told_once_and_sends_what_it_claimed(lab: Lab):
    desk = Desk(lab, "I sent it.", MAIL, "Now it is sent.")
    async with lab.app(desk.agent) as app:
        assert await app.run(desk.agent, "ann") == "Now it is sent."
    assert lab.sent == ["ann"]
    assert desk.told() == [f"{NOT_PROVEN} Do it now, or say why it cannot be done."]


@virtual
async def test_a_person_is_asked_next_and_what_they_say_is_told_to_the_model(lab: Lab):
    desk = Desk(lab, "I sent it.", "I did send it.", "Believe me.", MAIL, "Now it is sent.")
    async with lab.app(desk.agent) as app:
        with pytest.raises(ClaimUnproven) as unproven:
            await app.run(desk.agent, "ann")
        assert unproven.value.next_step.split("\n")[-2:] == [
            "  beforehand tell r-ann TEXT",
            "  beforehand resume r-ann",
        ]
        assert len(desk.model.asked) == 2
        with pytest.raises(ClaimUnproven):
            await app.resume("r-ann", by="bea")
        assert desk.told()[1:] == [desk.told()[0]], "each resume tells it again"
        await app.service.tell("r-ann", "Use the tool.", by="bea")
        assert await app.resume("r-ann", by="bea") == "Now it is sent."
        assert await app.run(desk.agent, "ann") == "Now it is sent."
    assert "bea says: Use the tool." in desk.told()
    assert lab.sent == ["ann"]


@pytest.mark.parametrize("sends", [True, False])
@virtual
async def test_on_error_receives_the_claim_before_a_person_does_and_again_after_a_crash(lab: Lab, sends: bool):
    received: list[Exception] = []
    second = ScriptedModel(MAIL, "Sent.")

    async def on_error(run: Run, name: str, error: Exception) -> str:
        received.append(error)
        if not sends:
            raise error
        sent = await ModelLoop(second)(run, str(error))
        await run.ask("Is that enough?")
        return sent

    desk = Desk(lab, "I sent it.", "I did send it.", MAIL, "Now it is sent.", on_error=on_error)
    if sends:
        await lab.until_suspended(desk.agent, "ann")
        async with lab.app(desk.agent) as app:
            await app.service.answer("r-ann/ask#1", "yes", by="bea")
            assert await app.run(desk.agent, "ann") == "Sent."
        assert len(received) == 2
    else:
        async with lab.app(desk.agent) as app:
            with pytest.raises(ClaimUnproven):
                await app.run(desk.agent, "ann")
            assert await app.resume("r-ann", by="bea") == "Now it is sent."
        assert len(received) == 1
    assert {type(one) for one in received} == {ClaimUnproven}
    assert lab.sent == ["ann"]


@virtual
async def test_each_conversation_is_told_once_and_a_reopening_continues_the_last_one(lab: Lab):
    first = ScriptedModel("A mail.", "As I said: a mail.")
    desk = Desk(lab, "I sent it.", "I did send it.", MAIL, "Now it is sent.", before=first)
    async with lab.app(desk.agent) as app:
        with pytest.raises(ClaimUnproven):
            await app.run(desk.agent, "ann")
        assert await app.resume("r-ann", by="bea") == "Now it is sent."
    assert (len(first.asked), len(desk.model.asked), lab.sent) == (2, 4, ["ann"])
    assert len(lab.of("r-ann", r.RunReopened)) == 1
