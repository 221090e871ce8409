"""The adapter of Pydantic AI, against the library itself."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    FunctionToolset,
    ModelRetry,
    RunContext,
    Tool,
    ToolDefinition,
)
from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import DynamicToolset
from pydantic_ai.usage import RequestUsage, UsageLimits

from beforehand import Ambiguous, Beforehand, Rejected, Run, RunSuspended, agent, tool
from beforehand.errors import ContractError
from beforehand.hosts.pydantic_ai import BeforehandDurability, RoutedModel
from beforehand.loop import Route
from beforehand.model import records as r
from beforehand.model.usage import Usage
from beforehand.policies import RunBudget
from beforehand.queues.call_limits import ModelLimit
from beforehand.queues.limits import DeclaredLimits
from beforehand.testing import run_virtual
from tests.unit.engine.lab import Lab
from tests.unit.engine.test_money_budgets import priced

Calls = list[tuple[str, dict[str, Any]]]


class Script:
    """A model that makes these calls, one turn after the other, and then says what the tools returned."""

    def __init__(self, *turns: Calls) -> None:
        self.turns = turns
        self.asked = 0
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        ended = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
        made = sum(isinstance(part, ToolCallPart) for one in messages for part in one.parts)
        first = 0
        for number, turn in enumerate(self.turns):
            if first >= made:
                return ModelResponse(
                    parts=[ToolCallPart(name, args, f"call_{number}_{at}") for at, (name, args) in enumerate(turn)]
                )
            first += len(turn)
        return ModelResponse(parts=[TextPart("; ".join(str(part.content) for part in ended) or "nothing to do")])

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for number, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {number: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield word + " "


class Desk:
    """An agent of Pydantic AI in a run, over a journal on disk."""

    def __init__(self, journal: Path, host: Agent[None, str], *tools: Any) -> None:
        self.journal = journal
        self.tools = tools

        @agent
        async def desk(run: Run, task: str) -> str:
            return (await host.run(task)).output

        self.agent = desk

    def run(self, then: Any = None) -> str:
        """Run, and let a person act on the open app."""

        async def main() -> str:
            async with Beforehand(self.journal, agents=[self.agent], tools=self.tools, recover=False) as app:
                try:
                    return await asyncio.wait_for(app.run(self.agent, "go", run_id="r1"), 20)
                except RunSuspended as waits:
                    if then is not None:
                        await then(app)
                    return f"waits: {waits.message}"

        return asyncio.run(main())

    def steps(self) -> dict[str, str]:
        async def main() -> dict[str, str]:
            async with Beforehand(self.journal, agents=[self.agent], tools=self.tools, recover=False) as app:
                history = await app.service.history("r1")
                return {step: one.phase for step, one in history.operations.items()}

        return asyncio.run(main())


def host(script: Script, *tools: Any, **settings: Any) -> Agent[None, str]:
    return Agent(script.model, tools=list(tools), capabilities=[BeforehandDurability(**settings)])


def test_tools_of_both_kinds_are_operations_named_after_their_calls(tmp_path: Path):
    sent: list[str] = []

    @tool
    async def mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"mail to {to}"

    def pay(cents: int) -> dict[str, int]:
        sent.append(f"{cents}")
        return {"paid": cents}

    script = Script([("mail", {"to": "ann"}), ("pay", {"cents": 5})], [("mail", {"to": "bob"})])
    desk = Desk(tmp_path / "desk.db", host(script, mail, pay), mail)
    said = "mail to ann; {'paid': 5}; mail to bob"
    assert [desk.run(), desk.run()] == [said, said]
    assert sorted(sent) == ["5", "ann", "bob"]
    assert script.asked == 3
    assert desk.steps() == {
        "call_0_0/mail#1": "succeeded", "call_0_1/pay#1": "succeeded", "call_1_0/mail#1": "succeeded",
    }  # fmt: skip


def test_what_each_request_used_is_on_record(tmp_path: Path):
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=100, cache_read_tokens=60, output_tokens=20, details={"reasoning_tokens": 8})
        text = [TextPart("done")]
        return ModelResponse(text, usage=usage, provider_name="openai", provider_response_id="r-1")

    desk = Desk(tmp_path / "desk.db", Agent(FunctionModel(answer), capabilities=[BeforehandDurability()]))

    async def used() -> list[Usage]:
        async with Beforehand(desk.journal, agents=[desk.agent], recover=False) as app:
            rows = app.service.reader.records("r1", 0, r.DecisionRecorded)
            return [record.usage async for _, record in rows if isinstance(record, r.DecisionRecorded)]

    assert desk.run() == "done"
    (stated,) = asyncio.run(used())
    assert stated == Usage(100, 20, 0.0, 60, 0, 8, model="function:answer:", service="openai", request="r-1")


@pytest.mark.parametrize("declared", [True, False])
def test_an_unknown_outcome_is_asked_about_and_the_answer_goes_on(tmp_path: Path, declared: bool):
    sent: list[str] = []

    async def pay(cents: int) -> str:
        sent.append(f"{cents}")
        raise Ambiguous("the connection broke") if declared else OSError("the connection broke")

    script = Script([("pay", {"cents": 5})])
    payer = tool(pay) if declared else pay
    desk = Desk(tmp_path / "desk.db", host(script, payer), *([payer] if declared else []))

    async def answer(app: Beforehand) -> None:
        (row,) = await app.engine.journal.runs(run="r1")
        assert (row.status, b"call_0_0/pay#1" in row.waits) == ("suspended", True)
        await app.service.resolve("r1/call_0_0/pay#1", "happened", by="ann", result="paid, says ann")

    assert desk.run(answer).startswith("waits: run r1 waits: r1/call_0_0/pay#1")
    assert desk.run() == "paid, says ann"
    assert sent == ["5"]


@pytest.mark.parametrize("yes", [True, False])
def test_a_tool_that_requires_approval_asks_a_person_with_its_arguments(tmp_path: Path, yes: bool):
    sent: list[str] = []

    def pay(cents: int) -> str:
        sent.append(f"{cents}")
        return "paid"

    desk = Desk(tmp_path / "desk.db", host(Script([("pay", {"cents": 5})]), Tool(pay, requires_approval=True)))

    async def answer(app: Beforehand) -> None:
        act = app.service.approve if yes else app.service.decline
        await act("r1/call_0_0/pay#1", by="ann")

    assert "may pay(cents=5) be sent?" in desk.run(answer)
    assert ("paid" in desk.run(), sent) == (yes, ["5"] if yes else [])


def test_a_declared_tool_that_requires_approval_asks_once(tmp_path: Path):
    sent: list[int] = []

    @tool
    async def pay(cents: int) -> str:
        sent.append(cents)
        return "paid"

    desk = Desk(tmp_path / "desk.db", host(Script([("pay", {"cents": 5})]), Tool(pay, requires_approval=True)), pay)

    async def approve(app: Beforehand) -> None:
        await app.service.approve("r1/call_0_0/pay#1", by="ann")

    assert desk.run(approve).startswith("waits: ")
    assert (desk.run(), sent) == ("paid", [5])


def test_a_refusal_is_told_to_the_model(tmp_path: Path):
    @tool
    async def pay(cents: int) -> str:
        raise Rejected("the card is declined", code="card_declined")

    said = Desk(tmp_path / "desk.db", host(Script([("pay", {"cents": 5})]), pay), pay).run()
    assert "the card is declined" in said


def test_another_try_that_a_tool_asks_for_is_no_success(tmp_path: Path):
    sent: list[int] = []

    def pay(cents: int) -> str:
        sent.append(cents)
        if cents < 6:
            raise ModelRetry("pay more")
        return "paid"

    desk = Desk(tmp_path / "desk.db", host(Script([("pay", {"cents": 5})], [("pay", {"cents": 6})]), pay))
    assert [desk.run(), desk.run()] == ["pay more; paid"] * 2
    assert sent == [5, 6]
    assert desk.steps() == {"call_0_0/pay#1": "failed", "call_1_0/pay#1": "succeeded"}


def deferring(script: Script, sent: list[int], external: bool, output: Any) -> Agent[None, Any]:
    """An agent whose tool defers its call, or whose tool is performed elsewhere."""

    def pay(cents: int) -> str:
        sent.append(cents)
        raise CallDeferred

    elsewhere = ExternalToolset[None]([ToolDefinition(name="pay", parameters_json_schema={"type": "object"})])
    return Agent(
        script.model,
        tools=[] if external else [pay],
        toolsets=[elsewhere] if external else [],
        capabilities=[BeforehandDurability()],
        output_type=output,
    )


@pytest.mark.parametrize("external", [True, False])
def test_what_came_of_a_deferred_call_is_an_answer_in_the_inbox(tmp_path: Path, external: bool):
    script, sent = Script([("pay", {"cents": 5})]), list[int]()
    host = deferring(script, sent, external, [str, DeferredToolRequests])

    @agent
    async def desk(run: Run, task: str) -> str:
        said = await host.run(task)
        while isinstance(said.output, DeferredToolRequests):
            calls = {one.tool_call_id: await run.ask(f"what came of {one.args}?") for one in said.output.calls}
            results = DeferredToolResults(calls=dict(calls))
            said = await host.run(message_history=said.all_messages(), deferred_tool_results=results)
        return said.output

    one = Desk(tmp_path / "desk.db", host)
    one.agent = desk
    assert "what came of" in one.run(lambda app: app.service.answer("r1/ask#1", "paid", by="ann"))
    assert [one.run(), one.run()] == ["paid"] * 2
    assert (sent, script.asked) == ([] if external else [5], 2)


@pytest.mark.parametrize("external", [True, False])
def test_a_deferred_call_that_the_agent_does_not_expect_is_an_error_that_says_what_to_do(
    tmp_path: Path, external: bool
):
    script, sent = Script([("pay", {"cents": 5})]), list[int]()
    with pytest.raises(UserError, match="add `DeferredToolRequests` to the list of output types"):
        Desk(tmp_path / "desk.db", deferring(script, sent, external, str)).run()
    assert sent == ([] if external else [5])


def test_a_stream_is_asked_once_and_replayed(tmp_path: Path):
    sent: list[str] = []
    deltas: list[str] = []

    async def shown(ctx: RunContext[None], events: Any) -> None:
        async for event in events:
            deltas.extend([str(event.delta)] if isinstance(event, PartDeltaEvent) else [])

    def pay(cents: int) -> str:
        sent.append(f"{cents}")
        return "paid in full"

    script = Script([("pay", {"cents": 5})])
    desk = Desk(tmp_path / "desk.db", host(script, pay, event_stream_handler=shown))
    assert [desk.run().strip(), desk.run().strip()] == ["paid in full"] * 2
    assert (sent, script.asked, len(deltas)) == (["5"], 2, 2)


def test_a_read_is_declared_in_the_metadata(tmp_path: Path):
    async def look(sku: str) -> str:
        return f"3 of {sku}"

    declared = Tool(look, metadata={"beforehand": {"effect": "read", "timeout": timedelta(seconds=5)}})
    desk = Desk(tmp_path / "desk.db", host(Script([("look", {"sku": "A-1"})]), declared))
    assert desk.run() == "3 of A-1"
    assert desk.steps() == {}


@pytest.mark.parametrize(
    ("clauses", "text"), [({"twice": True}, "does not take twice"), ({"effect": "both"}, "effect='both'")]
)
def test_wrong_clauses_are_refused_before_anything_is_sent(tmp_path: Path, clauses: dict[str, Any], text: str):
    sent: list[str] = []

    def pay(cents: int) -> None:
        sent.append("paid")

    wrong = Tool(pay, metadata={"beforehand": clauses})
    with pytest.raises(ContractError, match=text):
        Desk(tmp_path / "desk.db", host(Script([("pay", {"cents": 5})]), wrong)).run()
    assert sent == []


def test_two_conversations_of_one_run_have_names_of_their_own(tmp_path: Path):
    script = Script()
    one = host(script)

    @agent
    async def desk(run: Run, task: str) -> list[str]:
        return [(await one.run(task)).run_id for task in ("a", "b")]

    async def main() -> Any:
        async with Beforehand(tmp_path / "desk.db", agents=[desk]) as app:
            ids = await app.run(desk, "go", run_id="r1")
            history = await app.service.engine.journal.read("r1")
            return ids, list(history)

    async def steps() -> list[str]:
        from beforehand.journal.record_codec import decode

        _, stored = await main()
        return [one.step for row in stored if isinstance(one := decode(row.body), r.DecisionRecorded)]

    assert asyncio.run(steps()) == ["turn-1/model#1", "agent-2.turn-1/model#1"]


def test_limits_of_the_host_and_a_second_engine_work_as_without(tmp_path: Path):
    def pay(cents: int) -> str:
        return "paid"

    limited = host(Script([("pay", {"cents": 5})]), pay)

    @agent
    async def desk(run: Run, task: str) -> str:
        with pytest.raises(UsageLimitExceeded):
            await limited.run(task, usage_limits=UsageLimits(request_limit=1))
        return "limited"

    async def main() -> str:
        async with Beforehand(tmp_path / "desk.db", agents=[desk]) as app:
            return await app.run(desk, "go", run_id="r1")

    assert asyncio.run(main()) == "limited"
    with pytest.raises(UserError, match="durable execution engine"):
        Agent(Script().model, capabilities=[BeforehandDurability(), BeforehandDurability()])


@pytest.mark.parametrize("given", ["to the agent", "by the decorator", "to the run"])
def test_toolsets_are_recorded_or_refused(tmp_path: Path, given: str):
    sent: list[int] = []

    def pay(cents: int) -> str:
        sent.append(cents)
        return f"paid {cents}"

    def toolset(_: Any) -> FunctionToolset[None]:
        return FunctionToolset([pay], id="payments")

    toolsets = [DynamicToolset(toolset, id="desk")] if given == "to the agent" else []
    model = Script([("pay", {"cents": 5})]).model
    payer = Agent(model, name="desk", toolsets=toolsets, capabilities=[BeforehandDurability()])
    if given == "by the decorator":
        payer.toolset(toolset)

    @agent
    async def desk(run: Run, task: str) -> str:
        late = [toolset(None)] if given == "to the run" else []
        with (
            contextlib.nullcontext()
            if given == "to the agent"
            else pytest.raises(UserError, match="cannot be added at runtime")
        ):
            return (await payer.run(task, toolsets=late)).output
        return "refused"

    async def main() -> str:
        async with Beforehand(tmp_path / "desk.db", agents=[desk]) as app:
            said = await app.run(desk, "go", run_id="r1")
            steps = list((await app.service.history("r1")).operations)
            assert len(steps) == len(sent), steps
            return said

    assert [asyncio.run(main()), sent] == (["paid 5", [5]] if given == "to the agent" else ["refused", []])


def test_outside_a_run_the_agent_works_as_without(tmp_path: Path):
    def pay(cents: int) -> str:
        return "paid"

    script = Script([("pay", {"cents": 5})])
    assert asyncio.run(host(script, pay).run("go")).output == "paid"


@pytest.mark.parametrize(
    "ids", [["a/b", "", "x#2", "y" * 201], ["a", "a", "a"], ["", "call-1"]], ids=["unusable", "twice", "mixed"]
)
def test_ids_of_a_model_that_cannot_name_a_step_are_replaced(tmp_path: Path, ids: list[str]):
    sent: list[int] = []

    async def pay(cents: int) -> str:
        sent.append(cents)
        if len(sent) == len(ids):
            raise OSError("the connection broke")
        return "paid"

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("all paid")])
        return ModelResponse(parts=[ToolCallPart("pay", {"cents": at}, one) for at, one in enumerate(ids)])

    desk = Desk(tmp_path / "desk.db", Agent(FunctionModel(model), tools=[pay], capabilities=[BeforehandDurability()]))
    assert desk.run().startswith("waits: ")
    first = desk.steps()
    assert desk.run().startswith("waits: ")
    assert (desk.steps(), sorted(sent)) == (first, list(range(len(ids))))
    assert len(first) == len(ids)
    usable = {one for one in ids if one and len(one) < 201 and not set(one) & set("/#")}
    assert usable <= {step.partition("/")[0] for step in first}


SYNCHRONOUS = """
from beforehand import Run, agent
from beforehand.hosts.pydantic_ai import BeforehandDurability
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

def model(messages, info):
    return ModelResponse(parts=[TextPart("seen") if len(messages) > 1 else ToolCallPart("look", {}, "a")])

host = Agent(FunctionModel(model), capabilities=[BeforehandDurability()])

@host.tool_plain(metadata={"beforehand": {"effect": "read"}})
def look() -> str:
    return "seen"

@agent
async def desk(run: Run, task: str) -> str:
    return (await host.run(task)).output

def test_it(world):
    world.explore(desk, "go")
"""


@pytest.mark.deep
def test_a_new_project_explores_crashes_without_a_warning_and_its_tests_end(tmp_path: Path):
    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
        )

    made = python("-m", "beforehand", "init", "pp", "--host", "pydantic-ai")
    assert made.returncode == 0, made.stderr
    (tmp_path / "pp" / "test_synchronous.py").write_text(SYNCHRONOUS)
    ended = python("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "pp")
    assert (ended.returncode, "2 passed in" in ended.stdout) == (0, True), ended.stdout + ended.stderr


# --- a route of the host's models -------------------------------------------------------------------------------------


def routed(*models: Any, streamed: bool = False) -> tuple[str, list[r.DecisionRecorded]]:
    """The result of an agent over a route of these models, and its decisions."""
    desk: Agent[None, str] = Agent(RoutedModel(Route(models)), capabilities=[BeforehandDurability()])

    @agent(run_id="routed-{text}")
    async def host(run: Run, text: str) -> str:
        if not streamed:
            return (await desk.run(text)).output
        async with desk.run_stream(text) as answer:
            return await answer.get_output()

    async def run() -> tuple[str, list[r.DecisionRecorded]]:
        async with Lab().app(host) as app:
            result = await app.run(host, "x")
            records = [one async for _, one in app.service.reader.records("routed-x", 0, r.DecisionRecorded)]
            return result, [one for one in records if isinstance(one, r.DecisionRecorded)]

    return run_virtual(run())


def saying(name: str, fault: Exception | None = None) -> FunctionModel:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if fault is not None:
            raise fault
        return ModelResponse([TextPart(f"{name} says")])

    async def pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if fault is not None:
            raise fault
        yield f"{name} says"

    return FunctionModel(answer, stream_function=pieces, model_name=name)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_route_of_the_hosts_models_falls_back_by_the_class_of_their_errors(streamed: bool):
    down = saying("big", ModelHTTPError(429, "big"))
    result, (decided,) = routed(down, saying("small"), streamed=streamed)
    assert (result, decided.model) == ("small says", "small")
    assert decided.why.startswith("big failed (rate_limited): ModelHTTPError: status_code: 429")


@pytest.mark.parametrize("limited", ["big", "small"])
@pytest.mark.parametrize("wrapped", ["alone", "wrapped", "fallback", "route", "nested"])
def test_a_limit_holds_for_the_models_of_the_host(wrapped: str, limited: str):
    """For each that a question may ask: a fallback and a route may ask the second one, too."""
    big, small = saying("big"), saying("small")
    nested = FallbackModel(big, WrapperModel(FallbackModel(saying("other"), RoutedModel(Route([small])))))
    several = {"fallback": FallbackModel(big, small), "route": RoutedModel(Route([big, small])), "nested": nested}
    model = {"alone": big, "wrapped": WrapperModel(big), **several}[wrapped]
    desk: Agent[None, str] = Agent(model, capabilities=[BeforehandDurability()])

    @agent(run_id="{text}")
    async def asking(run: Run, text: str) -> str:
        return (await desk.run(text)).output

    async def run() -> str:
        async with Lab().app(asking, queues=DeclaredLimits(models={limited: ModelLimit(rate="1/minute")})) as app:
            assert await app.run(asking, "one") == "big says"
            try:
                return await app.run(asking, "two")
            except RunSuspended as waits:
                return waits.message

    waits = limited == "big" or wrapped in several
    assert run_virtual(run()) == (
        f"run two waits: two/turn-1/model#1: the limit of model {limited} is reached" if waits else "big says"
    )


def test_a_budget_in_a_currency_knows_the_price_of_the_hosts_model():
    desk: Agent[None, str] = Agent(saying("large"), capabilities=[BeforehandDurability()])

    @agent(run_id="{text}", budget=RunBudget(cost="1000 EUR", then="stop"))
    async def asking(run: Run, text: str) -> str:
        return (await desk.run(text)).output

    async def run() -> str:
        async with Lab().app(asking, prices=priced()) as app:
            return await app.run(asking, "one")

    assert run_virtual(run()) == "large says"


def test_a_routed_model_outside_a_run_asks_the_first():
    routed_agent = Agent(RoutedModel(Route([saying("big"), saying("small")])))
    assert asyncio.run(routed_agent.run("x")).output == "big says"
