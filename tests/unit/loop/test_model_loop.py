"""The loop around a model: turns, calls, limits, structured output, and what is on record."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from beforehand import Key, Once, Run, agent, current_operation, tool
from beforehand.errors import DecisionFailed, LoopStopped, ModelError, UsageError
from beforehand.loop import Chat, Compaction, LoopLimits, ModelCall, ModelLoop, ModelReply, user
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.testing import run_virtual
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab

sent: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sent():
    sent.clear()


@tool(idempotency=Key.forever())
async def refund(order_id: str, cents: int) -> str:
    """Give the money of an order back."""
    sent.append(f"refund {order_id} {cents} {current_operation().key[:0]}".strip())
    return f"refunded {cents}"


@tool(idempotency=Key.forever(), once=Once("to", within=timedelta(days=7), reworded=True))
async def send_email(to: str, subject: str, body: str) -> str:
    sent.append(f"mail {to} {current_operation().key[:0]}".strip())
    return "sent"


def call(given: str, name: str, **arguments: object) -> ModelCall:
    return ModelCall(given, name, msgspec.json.encode(arguments).decode())


REFUND = call("call_9f2", "refund", order_id="A-17", cents=1200)


def desk(loop: ModelLoop):
    @agent(run_id="chat-{text}", tools=[refund, send_email])
    async def support(run: Run, text: str) -> str:
        return await loop(run, text)

    return support


def app_of(support):
    return Lab().app(support)


async def talk(loop: ModelLoop, text: str = "hello") -> tuple[object, list[r.Record]]:
    """The result of a run, or its error, and its records."""
    support = desk(loop)
    async with app_of(support) as app:
        try:
            result: object = await app.run(support, text)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            result = error
        records = [record async for _, record in app.service.reader.records(f"chat-{text}")]
        return result, records


def told(loop: ModelLoop) -> tuple[object, list[r.Record]]:
    return run_virtual(talk(loop))


def decisions(records: list[r.Record]) -> list[r.DecisionRecorded]:
    return [record for record in records if isinstance(record, r.DecisionRecorded)]


def shown(model: ScriptedModel, turn: int) -> list[str]:
    return [message.text for message in model.asked[turn].messages]


# --- turns and calls --------------------------------------------------------------------------------------------------


def test_a_turn_is_one_decision_and_its_calls_are_named_by_the_model():
    model = ScriptedModel(REFUND, "All done.")
    result, records = told(ModelLoop(model, "You refund."))
    assert (result, sent) == ("All done.", ["refund A-17 1200"])
    assert [one.step for one in decisions(records)] == ["turn/model#1", "turn#2/model#1"]
    assert [one.input_tokens for one in decisions(records)] == [10, 10]
    (attempt,) = [record for record in records if isinstance(record, r.AttemptStarted)]
    assert attempt.step == "turn/call_9f2/refund#1"
    assert attempt.intent is not None
    assert attempt.intent.origin == "model"
    assert shown(model, 1) == ["hello", "", "refunded 1200"]
    assert model.asked[0].instructions == "You refund."
    assert [one["name"] for one in model.asked[0].tools] == ["refund", "send_email"]


def test_a_second_run_of_the_same_id_asks_no_model():
    model = ScriptedModel(REFUND, "done")
    support = desk(ModelLoop(model))

    async def twice() -> list[str]:
        async with app_of(support) as app:
            return [await app.run(support, "x"), await app.run(support, "x")]

    assert run_virtual(twice()) == ["done", "done"]
    assert len(model.asked) == 2


def test_parallel_calls_run_at_once_and_keep_their_order():
    calls = (call("b", "refund", order_id="B", cents=2), call("a", "refund", order_id="A", cents=1))
    model = ScriptedModel(calls, "done")
    _, records = told(ModelLoop(model))
    assert sorted(sent) == ["refund A 1", "refund B 2"]
    assert [(one.answers, one.text) for one in model.asked[1].messages[2:]] == [
        ("b", "refunded 2"),
        ("a", "refunded 1"),
    ]
    steps = {record.step for record in records if isinstance(record, r.AttemptStarted)}
    assert steps == {"turn/b/refund#1", "turn/a/refund#1"}


def test_the_same_ids_in_another_turn_are_other_calls():
    model = ScriptedModel(
        call("call-1", "refund", order_id="A", cents=1), call("call-1", "refund", order_id="B", cents=1), "x"
    )
    told(ModelLoop(model))
    assert sent == ["refund A 1", "refund B 1"]


def test_an_id_that_names_no_step_is_replaced_by_its_place():
    _, records = told(ModelLoop(ScriptedModel(call("a/b#~", "refund", order_id="A", cents=1), "x")))
    assert [one.step for one in records if isinstance(one, r.AttemptStarted)] == ["turn/call-1/refund#1"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (call("1", "refnd", order_id="A"), "there is no tool 'refnd'; the tools are: refund, send_email"),
        (ModelCall("1", "refund", "{"), "this is not JSON"),
        (call("1", "refund", order_id="A", cents="5"), "cents"),
    ],
)
def test_a_call_that_does_not_fit_is_told_to_the_model_and_nothing_is_sent(wrong: ModelCall, said: str):
    model = ScriptedModel(wrong, "sorry")
    result, _ = told(ModelLoop(model))
    assert (result, sent) == ("sorry", [])
    assert said in model.asked[1].messages[-1].text
    assert model.asked[1].messages[-1].failed


@pytest.mark.parametrize(
    "nonsense",
    [
        (call("1", "refund", order_id="A", cents=1), call("1", "refund", order_id="A", cents=1)),
        call("1", "", order_id="A"),
        ModelReply(""),
    ],
)
def test_an_answer_that_is_nonsense_is_asked_for_again_and_then_an_error(nonsense):
    model = ScriptedModel(nonsense)
    result, records = told(ModelLoop(model, retry=Retry(attempts=2)))
    assert isinstance(result, DecisionFailed)
    assert (sent, len(model.asked)) == ([], 2)
    assert decisions(records)[0].code == "malformed"
    assert "the model's answer has" in decisions(records)[0].reason


def test_a_tool_that_the_model_is_not_offered_is_not_called():
    model = ScriptedModel(REFUND, "sorry")
    result, records = told(ModelLoop(model, tools=("send_email",)))
    assert (result, sent) == ("sorry", [])
    assert "there is no tool 'refund'; the tools are: send_email" in model.asked[1].messages[-1].text
    assert not [one for one in records if isinstance(one, r.AttemptStarted)]


def test_a_loop_that_names_a_tool_which_the_agent_does_not_have():
    model = ScriptedModel("x")
    result, _ = told(ModelLoop(model, tools=("refund", "pay")))
    assert isinstance(result, UsageError)
    assert "does not have: pay" in str(result)
    assert not model.asked


# --- a model that repeats itself --------------------------------------------------------------------------------------


def test_a_model_that_rewords_an_e_mail_is_told_that_it_was_sent():
    def mail(number: int) -> ModelCall:
        return call(f"c{number}", "send_email", to="ann@example.com", subject=f"Hello no. {number}", body="b" * number)

    model = ScriptedModel(*(mail(number) for number in range(47)), "I give up.")
    result, _ = told(ModelLoop(model))
    assert (result, sent) == ("I give up.", ["mail ann@example.com"])
    answers = [one.text for one in model.asked[-1].messages if one.role == "tool"]
    assert answers[0] == "sent"
    assert len(answers) == 47
    assert all("Already done, not done again" in text for text in answers[1:])


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_most_turns():
    model = ScriptedModel(*(call(f"c{n}", "refund", order_id=f"{n}", cents=1) for n in range(9)))
    result, _ = told(ModelLoop(model, limits=LoopLimits(turns=3)))
    assert isinstance(result, LoopStopped)
    assert (result.code, len(sent)) == ("turns", 3)
    assert "the limit of 3 turns is reached" in str(result)
    assert "beforehand show chat-hello" in result.next_step


def test_the_most_tokens():
    model = ScriptedModel(*(call(f"c{n}", "refund", order_id=f"{n}", cents=1) for n in range(9)))
    result, _ = told(ModelLoop(model, limits=LoopLimits(tokens=20)))
    assert isinstance(result, LoopStopped)
    assert (result.code, len(sent)) == ("tokens", 2)


def test_a_cut_answer_is_not_performed_and_asked_for_again():
    cut = ModelReply("I will", (ModelCall("1", "refund", '{"order_id": "A"'),), "length")
    model = ScriptedModel(cut, "shorter")
    result, _ = told(ModelLoop(model))
    assert (result, sent) == ("shorter", [])
    assert "cut at 4096 tokens, and nothing of it was done" in model.asked[1].messages[-1].text
    assert not model.asked[1].messages[-2].calls, "a call without an answer is refused by providers"


def test_answers_that_stay_cut_end_the_loop():
    model = ScriptedModel(*[ModelReply("..", (), "length")] * 9)
    result, _ = told(ModelLoop(model, limits=LoopLimits(corrections=2)))
    assert isinstance(result, LoopStopped)
    assert (result.code, len(model.asked)) == ("unusable", 3)


def test_a_refusal_ends_the_loop():
    result, _ = told(ModelLoop(ScriptedModel(ModelReply("I cannot help with that", (), "refusal"))))
    assert isinstance(result, LoopStopped)
    assert result.code == "refusal"
    assert "I cannot help with that" in str(result)


@pytest.mark.parametrize("limits", [{"turns": 0}, {"answer_tokens": 0}, {"tokens": -1}, {"corrections": -1}])
def test_limits_that_are_none(limits: dict[str, int]):
    with pytest.raises(UsageError, match="the limits of a loop"):
        LoopLimits(**limits)


# --- retries ----------------------------------------------------------------------------------------------------------


def outage() -> ModelError:
    return ModelError("out of order", code="unavailable")


def test_a_failed_call_is_tried_again_counted_and_then_answered():
    model = ScriptedModel([outage(), outage(), "there"])
    result, records = told(ModelLoop(model))
    assert result == "there"
    assert [one.number for one in records if isinstance(one, r.DecisionStarted)] == [1, 2, 3]


def test_a_provider_that_says_when_is_asked_then():
    model = ScriptedModel([ModelError("slow down", code="rate_limited", retry_after=120), "ok"])
    _, records = told(ModelLoop(model))
    first, second = (one.at for one in records if isinstance(one, r.DecisionStarted))
    assert second - first >= 120_000


# --- structured output ------------------------------------------------------------------------------------------------


class Ruling(msgspec.Struct):
    cents: int
    why: str


def asking(model: ScriptedModel, returns: type) -> tuple[object, ScriptedModel]:
    @agent(run_id="rule-{text}", tools=[refund])
    async def rules(run: Run, text: str) -> str:
        return repr(await ModelLoop(model).ask(run, text, returns))

    async def run() -> object:
        async with app_of(rules) as app:
            return await app.run(rules, "x")

    return run_virtual(run()), model


def test_structured_output_is_a_value_and_what_does_not_fit_is_told():
    script = ScriptedModel(REFUND, "no JSON", '{"cents": "5", "why": "x"}', '{"cents": 5, "why": "late"}')
    result, model = asking(script, Ruling)
    assert result == "Ruling(cents=5, why='late')"
    schema = model.asked[0].returns
    assert (schema["type"], set(schema["properties"])) == ("object", {"cents", "why"})
    assert "does not fit the schema" in model.asked[2].messages[-1].text
    assert "`$.cents`" in model.asked[3].messages[-1].text


def test_a_plain_value_is_a_property_of_the_answer():
    result, model = asking(ScriptedModel('{"value": [1, 2]}'), list[int])
    assert result == "[1, 2]"
    assert model.asked[0].returns["required"] == ["value"]


@pytest.mark.parametrize(
    ("odd", "told_as"),
    [
        ('{"cents": 1, "cents": 900, "why": "x"}', "cents: it is given twice in one object."),
        ('{"a":' * 100_000, "nested too deeply."),
        ('{"cents": ' + "[" * 500 + "]" * 500 + ', "why": "x"}', "Expected `int`, got `array` - at `$.cents`."),
        ('{"cents": NaN, "why": "x"}', "NaN is not JSON."),
        ('{"cents": 5, "why": "\\ud800"}', "surrogates not allowed."),
        ("[5]", "a JSON object is expected, not list."),
    ],
)
def test_an_answer_of_another_form_is_told_with_what_its_model_can_change(odd: str, told_as: str):
    result, model = asking(ScriptedModel(odd, '{"cents": 5, "why": "late"}'), Ruling)
    assert result == "Ruling(cents=5, why='late')"
    said = model.asked[1].messages[-1].text
    assert said.startswith("Your answer does not fit the schema: ")
    assert told_as in said
    assert "on record" not in said, "the advice is for the model"


def test_an_answer_without_its_property_is_told_its_name():
    _, model = asking(ScriptedModel('{"cents": 5}', '{"value": 5}'), int)
    assert "the object has no property 'value'." in model.asked[1].messages[-1].text


# --- compaction -------------------------------------------------------------------------------------------------------


def test_a_long_history_is_compacted_by_the_rule_and_receipts_stay():
    def answers(request):
        if request.messages[-1].text.startswith("Summarize"):
            return "they wanted refunds"
        turn = sum(1 for one in request.messages if one.role == "tool")
        return "done" if "they wanted refunds" in request.messages[0].text and turn >= 1 else refunds[len(sent)]

    refunds = [call(f"c{n}", "refund", order_id=f"order-{n}-{'x' * 200}", cents=1) for n in range(20)]

    class Endless(ScriptedModel):
        async def answer(self, request, on_text=lambda _: None):
            self.asked.append(request)
            said = answers(request)
            return ModelReply(said) if isinstance(said, str) else ModelReply("", (said,), "calls")

    model = Endless("x")
    result, records = told(ModelLoop(model, compaction=Compaction(above=200, keep=2)))
    assert result == "done"
    (rule,) = [
        msgspec.json.decode(one.value)
        for one in records
        if isinstance(one, r.ValueRecorded) and one.what == "compacted"
    ][:1]
    assert (rule["above"], rule["keep"]) == (200, 2)
    after = next(one for one in model.asked if "they wanted refunds" in one.messages[0].text)
    assert "refund" in after.messages[0].text.split("in short")[0], "the receipts come from the records"
    assert after.messages[1].role == "assistant", "a call stays with its outcome"


@pytest.mark.parametrize("rule", [{"above": 0}, {"keep": 0}])
def test_a_rule_that_keeps_nothing(rule: dict[str, int]):
    with pytest.raises(UsageError, match="Compaction"):
        Compaction(**rule)


# --- people -----------------------------------------------------------------------------------------------------------


def test_a_message_to_the_run_reaches_the_model():
    model = ScriptedModel(call("c1", "wait_long"), lambda request: request.messages[-1].text)

    @tool(idempotency=Key.forever())
    async def wait_long() -> str:
        await asyncio.sleep(10)
        return f"{current_operation().key[:0]}waited"

    @agent(run_id="told-{text}", tools=[wait_long])
    async def support(run: Run, text: str) -> str:
        return await ModelLoop(model)(run, text)

    async def run() -> str:
        async with app_of(support) as app:
            running = app.start(support, "x")
            await asyncio.sleep(1)
            await app.service.tell("told-x", "make it two", by="ann")
            return await running.result()

    assert run_virtual(run()) == "ann says: make it two"


def test_a_message_that_requests_a_stop_lets_nothing_more_be_sent():
    model = ScriptedModel(call("c1", "wait_long"), REFUND, lambda request: request.messages[-1].text)

    @tool(idempotency=Key.forever())
    async def wait_long() -> str:
        await asyncio.sleep(10)
        return f"{current_operation().key[:0]}waited"

    @agent(run_id="stop-{text}", tools=[wait_long, refund])
    async def support(run: Run, text: str) -> str:
        return await ModelLoop(model)(run, text)

    async def run() -> str:
        async with app_of(support) as app:
            running = app.start(support, "x")
            await asyncio.sleep(1)
            await app.service.tell("stop-x", "leave it", by="ann", stop=True)
            return await running.result()

    assert "Not sent: ann says: leave it. Do not call tools" in run_virtual(run())
    assert sent == []


def test_two_conversations_of_one_run_have_steps_of_their_own():
    model = ScriptedModel(REFUND, "done")

    @agent(run_id="two-{text}", tools=[refund])
    async def twice(run: Run, text: str) -> str:
        loop = ModelLoop(model)
        return f"{await loop(run, text)} {await loop(run, 'again')}"

    async def run() -> tuple[str, list[str]]:
        async with app_of(twice) as app:
            result = await app.run(twice, "x")
            return result, list((await app.service.history("two-x")).operations)

    assert run_virtual(run()) == ("done done", ["turn/call_9f2/refund#1", "turn#3/call_9f2/refund#1"])


def test_the_ten_lines_of_the_loop_can_be_owned():
    model = ScriptedModel(REFUND, "done")
    loop = ModelLoop(model, "You refund.", tools=("refund",))

    @agent(run_id="own-{text}", tools=[refund, send_email])
    async def own(run: Run, text: str) -> str:
        chat = Chat(run, loop, [user(text)])
        while (reply := await chat.turn()).calls:
            outcomes = await chat.perform(reply.calls)
            assert [outcome.status for outcome in outcomes] == ["succeeded"]
        return f"{reply.text} after {chat.turns}"

    async def run() -> str:
        async with app_of(own) as app:
            return await app.run(own, "x")

    assert run_virtual(run()) == "done after 2"
    assert [one["name"] for one in model.asked[0].tools] == ["refund"]
