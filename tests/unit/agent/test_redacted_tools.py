"""A tool with `redact=` is refused where it is offered to a model: the model's answer would be recorded in clear."""

from typing import Any

import pytest

from beforehand import Run, agent, tool, tool_from_schema
from beforehand.agent.hosted import in_hosted_run
from beforehand.errors import ContractError
from beforehand.loop import Chat, ModelLoop, ModelPlanner
from beforehand.planning.schema import plan_schema
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab, virtual

CARD = "4111 1111 1111"


@tool(redact=["card"])
async def charge(card: str, shop: str) -> str:
    return f"charged at {shop}"


@tool(effect="read")
async def look(shop: str) -> str:
    return "open"


async def refused(lab: Lab, body: Any) -> str:
    """The error of a run with this body; nothing of it is on record."""

    @agent(run_id="r-{name}", tools=[charge, look])
    async def desk(run: Run, name: str) -> object:
        return await body(run)

    async with lab.app(desk) as app:
        with pytest.raises(ContractError) as error:
            await app.run(desk, "x")
        assert CARD not in str([record async for _, record in app.service.reader.records("r-x")])
    return str(error.value)


@virtual
async def test_the_loop_refuses_to_offer_it_before_the_model_is_asked(lab: Lab):
    model = ScriptedModel("done")
    told = await refused(lab, lambda run: ModelLoop(model)(run, "pay"))
    assert "tool charge redacts card" in told
    assert 'read the value by its name, Secret("...")' in told
    assert model.asked == []


@virtual
async def test_the_descriptions_for_a_loop_of_your_own_refuse_it_unless_others_are_named(lab: Lab):
    async def describes(run: Run) -> None:
        assert [one["function"]["name"] for one in run.tools.schemas("openai", ["look"])] == ["look"]
        run.tools.schemas("openai")

    assert "tool charge redacts card" in await refused(lab, describes)


@virtual
async def test_a_framework_that_offers_it_is_refused_before_its_model_is_asked(lab: Lab):
    async def asks(run: Run) -> None:
        async def model() -> dict[str, str]:
            raise AssertionError

        await in_hosted_run("a model").turn("turn-1", {"tools": ["look", "charge"]}, model)

    assert "tool charge redacts card" in await refused(lab, asks)


@virtual
async def test_a_framework_that_calls_it_under_another_name_is_refused_before_it_is_sent(lab: Lab):
    async def calls(run: Run) -> None:
        await in_hosted_run("a call").call("call_1", charge, {"card": CARD, "shop": "s"})

    assert "tool charge redacts card" in await refused(lab, calls)


@virtual
async def test_a_function_of_a_framework_cannot_redact(lab: Lab):
    async def body() -> None:
        raise AssertionError

    schema = {"type": "object", "properties": {"card": {"type": "string"}}}
    late = tool_from_schema(body, name="pay", parameters=schema, late=True, redact=["card"])

    async def calls(run: Run) -> None:
        await in_hosted_run("a call").call_body("call_1", late, {"card": CARD}, body)

    assert "tool pay redacts card" in await refused(lab, calls)


def test_a_planner_is_not_offered_it():
    with pytest.raises(ContractError, match="tool charge redacts card"):
        plan_schema([look, charge])
    with pytest.raises(ContractError, match="tool charge redacts card"):
        ModelPlanner(ScriptedModel("x"), [charge])


@virtual
async def test_code_calls_it_beside_a_model_that_cannot(lab: Lab):
    @agent(run_id="r-{name}", tools=[charge, look])
    async def desk(run: Run, name: str) -> list[object]:
        chat = Chat(run, ModelLoop(ScriptedModel("done"), tools=("look",)), "is it open?")
        return [
            (await chat.turn()).text,
            await charge(CARD, "s"),
            (await run.call("charge", {"card": CARD, "shop": "s"})).as_text(),
        ]

    async with lab.app(desk) as app:
        text, charged, refusal = await app.run(desk, "x")
        assert (text, charged) == ("done", "charged at s")
        assert "there is no tool 'charge'; the tools are: look" in refusal
        assert CARD not in str([record async for _, record in app.service.reader.records("r-x")])
