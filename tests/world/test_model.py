"""A scripted model rephrases when it is asked again; only a recorded decision is not asked again."""

import pytest

from holdfast import Key, Run, agent, current_operation, tool
from holdfast.testing import World, run_virtual
from holdfast.testing.services import Payments, ScriptedModel

model = ScriptedModel(["ann", "Ann"])
payments = Payments()


async def think(turn: int) -> str:
    return await model.answer(turn)


@tool(idempotency=Key.forever())
async def charge(account: str) -> str:
    return await payments.charge(account, 5, key=current_operation().key)


@agent(tools=[charge])
async def deciding(run: Run, given: str) -> str:
    return await charge(await run.decide(think, 0))


@agent(tools=[charge])
async def forgetful(run: Run, given: str) -> str:
    return await charge(await think(0))


def test_it_says_the_same_in_other_words_and_the_last_ones_stay():
    async def asks() -> list[str]:
        return [await model.answer(0) for _ in range(3)]

    model.reset()
    assert run_virtual(asks()) == ["ann", "Ann", "Ann"]
    assert model.asked == [0, 0, 0]


def test_a_turn_without_an_answer_is_refused():
    with pytest.raises(ValueError, match="at least one answer"):
        ScriptedModel(["a"], [])


def test_a_lost_reply_does_not_ask_a_recorded_decision_again(world: World):
    world.use(model, payments)
    world.lose_reply(charge)
    assert world.run(deciding, "x").status == "completed"
    assert (model.asked, payments.effects()) == ([0], ["charge ann 5"])


def test_a_model_that_is_asked_without_a_record_is_found_out(world: World):
    world.use(model, payments)
    with pytest.raises(AssertionError, match="is another call than the recorded one") as told:
        world.explore(forgetful, "x")
    assert "after charge was done" in str(told.value)
