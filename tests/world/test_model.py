"""A scripted model rephrases when it is asked again; only a recorded decision is not asked again."""

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import ModelError
from beforehand.loop import ChatMessage, ModelCall, ModelRequest, user
from beforehand.testing import World, run_virtual
from beforehand.testing.services import Payments, ScriptedModel

model = ScriptedModel(["ann", "Ann"])
payments = Payments()


async def think(prompt: str) -> str:
    return (await model.answer(ModelRequest(messages=(user(prompt),)))).text


@tool(idempotency=Key.forever())
async def charge(account: str) -> str:
    return await payments.charge(account, 5, key=current_operation().key)


@agent(tools=[charge])
async def deciding(run: Run, given: str) -> str:
    return await charge(await run.decide(think, "who?"))


@agent(tools=[charge])
async def forgetful(run: Run, given: str) -> str:
    return await charge(await think("who?"))


def prompts() -> list[str]:
    return [request.messages[0].text for request in model.asked]


def test_it_says_the_same_in_other_words_and_the_last_ones_stay():
    async def asks() -> list[str]:
        return [await think("who?") for _ in range(3)]

    model.reset()
    assert run_virtual(asks()) == ["ann", "Ann", "Ann"]
    assert prompts() == ["who?", "who?", "who?"]


def test_its_turn_is_told_from_the_messages_it_is_shown():
    scripted = ScriptedModel(
        ModelCall("c1", "charge"),
        lambda request: f"answered {request.messages[-1].text}",
        ModelError("no", code="refused"),
    )
    said: list[str] = []
    shown = [user("go"), ChatMessage("assistant", calls=(ModelCall("c1", "charge"),)), ChatMessage("tool", "ch-1")]
    second = run_virtual(scripted.answer(ModelRequest(messages=tuple(shown)), said.append))
    assert (second.text, said) == ("answered ch-1", ["answered", " ch-1"])
    first = run_virtual(scripted.answer(ModelRequest(messages=tuple(shown[:1]))))
    assert (first.stop, first.calls[0].tool) == ("calls", "charge")
    third = (*shown, ChatMessage("assistant", "x"))
    with pytest.raises(ModelError, match="no"):
        run_virtual(scripted.answer(ModelRequest(messages=third)))
    with pytest.raises(ModelError, match="has 3 answers, and the conversation 3"):
        run_virtual(scripted.answer(ModelRequest(messages=(*third, ChatMessage("assistant", "y")))))


def test_a_turn_without_an_answer_is_refused():
    with pytest.raises(ValueError, match="at least one answer"):
        ScriptedModel(["a"], [])


def test_a_lost_reply_does_not_ask_a_recorded_decision_again(world: World):
    world.use(model, payments)
    world.lose_reply(charge)
    assert world.run(deciding, "x").status == "completed"
    assert (prompts(), payments.effects()) == (["who?"], ["charge ann 5"])


def test_a_model_that_is_asked_without_a_record_is_found_out(world: World):
    world.use(model, payments)
    with pytest.raises(AssertionError, match="is another call than the recorded one") as told:
        world.explore(forgetful, "x")
    assert "after charge was done" in str(told.value)
