"""Traces of runs: over restarts, without a second span on replay, and without anything that waits for an exporter."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from beforehand import Beforehand, Key, Run, RunSuspended, Secret, agent, current_operation, tool
from beforehand.errors import NotSent, Rejected, UsageError
from beforehand.model import records as r
from beforehand.model.usage import Usage
from beforehand.policies import Retry
from beforehand.telemetry import following
from beforehand.telemetry.opentelemetry import OpenTelemetry, context_of, traceparent
from beforehand.telemetry.prometheus import Prometheus
from tests.unit.engine.lab import Lab, virtual
from tests.unit.telemetry.tracing import Traced, text

HEADERS: list[dict[str, str]] = []


class Answer(msgspec.Struct):
    """What a model says, and what it used."""

    text: str
    usage: Usage


async def ask(question: str) -> Answer:
    return Answer("yes", Usage(input_tokens=40, output_tokens=2, cached_tokens=30, model="large-1", service="example"))


@tool(effect="read")
def stock(item: str) -> int:
    """A synchronous tool, in a thread of its own."""
    _headers()
    return 3


@tool(idempotency=Key.forever())
async def charge(item: str, password: Secret) -> str:
    assert current_operation().key
    assert password.reveal() == "do-not-show"
    _headers()
    return f"charged {item}"


def _headers() -> None:
    """The headers that an instrumented HTTP client would send."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    HEADERS.append(headers)


@agent(run_id="shop-{item}", tools=[stock, charge])
async def shop(run: Run, item: str) -> str:
    await stock(item)
    await run.decide(ask, item)
    return await charge(item, Secret("PASSWORD"))


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "do-not-show")
    HEADERS.clear()


@virtual
async def test_a_run_is_one_trace_with_the_names_of_the_conventions(lab: Lab):
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower()) as app:
        assert await app.run(shop, "mug") == "charged mug"
    run, chat = traced.one("invoke_agent shop"), traced.one("chat large-1")
    tools = {text(span, "gen_ai.tool.name"): span for span in traced.spans("execute_tool")}
    assert {span.context.trace_id for span in traced.spans()} == {run.context.trace_id}
    assert {span.parent.span_id for span in (chat, *tools.values())} == {run.context.span_id}
    assert text(run, "beforehand.run.status") == "completed"
    assert [text(chat, f"gen_ai.usage.{name}") for name in ("input_tokens", "output_tokens")] == [40, 2]
    assert text(chat, "gen_ai.usage.cache_read.input_tokens") == 30
    assert text(chat, "gen_ai.provider.name") == "example"
    assert text(tools["charge"], "gen_ai.tool.call.id") == "shop-mug/charge#1"
    # What tools send carries the span of their own attempt, also from a thread.
    sent = [context_of(headers["traceparent"]) for headers in HEADERS]
    assert [one.span_id for one in sent if one] == [tools[name].context.span_id for name in ("stock", "charge")]
    points = traced.points()
    usage = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert usage == {"input": 40, "output": 2}
    assert points["gen_ai.client.operation.duration"][0].count == 1
    about = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "example", "gen_ai.response.model": "large-1"}
    for point in (*points["gen_ai.client.token.usage"], *points["gen_ai.client.operation.duration"]):
        assert about.items() <= dict(point.attributes).items()


@pytest.mark.parametrize("contents", [False, True])
@virtual
async def test_contents_only_when_wanted_and_secrets_never(lab: Lab, contents: bool):
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower(contents=contents)) as app:
        await app.run(shop, "mug")
    shown = str([(dict(span.attributes or {}), span.events, span.status.description) for span in traced.spans()])
    assert ("charged mug" in shown, '"item":"mug"' in shown) == (contents, contents)
    assert "do-not-show" not in shown


@agent(run_id="wait-{item}", tools=[charge])
async def patient(run: Run, item: str) -> str:
    await charge(item, Secret("PASSWORD"))
    await run.ask("may I?", returns=str)
    return await charge(f"{item} again", Secret("PASSWORD"))


@virtual
async def test_a_resumed_run_continues_its_trace_and_replay_makes_no_span(lab: Lab):
    traced = Traced()
    async with lab.app(patient, telemetry=traced.follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(patient, "mug")
    first = traced.one("invoke_agent")
    assert text(first, "beforehand.run.status") == "suspended"
    traced.one("execute_tool")
    await lab.pass_time(hours=3)
    async with lab.app(patient, telemetry=traced.follower()) as app:
        await app.service.answer("wait-mug/ask#1", "yes", by="ann")
        await app.resume("wait-mug")
    _, second = traced.spans("invoke_agent")
    assert second.context.trace_id == first.context.trace_id
    assert [(link.context.span_id, dict(link.attributes or {})) for link in second.links] == [
        (first.context.span_id, {"beforehand.link": "resumed"})
    ]
    assert [text(span, "beforehand.step") for span in traced.spans("execute_tool")] == ["charge#1", "charge#2"]
    asked = traced.one("ask_person")
    assert asked.end_time - asked.start_time >= 3 * 3600 * 10**9
    assert asked.parent.span_id == first.parent.span_id  # it began before the process that saw its end


@virtual
async def test_the_code_that_asks_for_a_run_is_linked_and_decides_whether_it_is_traced(lab: Lab):
    traced, other = (
        Traced(),
        trace.NonRecordingSpan(trace.SpanContext(7, 9, is_remote=True, trace_flags=trace.TraceFlags(1))),
    )
    async with lab.app(shop, telemetry=traced.follower(sample=0.0)) as app:
        await app.run(shop, "cup")
        assert traced.spans() == []
        assert {context_of(one["traceparent"]).trace_flags for one in HEADERS} == {0}  # nor does what it calls
        token = context.attach(baggage.set_baggage("customer", "17", trace.set_span_in_context(other)))
        await app.run(shop, "mug")
        context.detach(token)
    run = traced.one("invoke_agent")
    assert [(link.context.trace_id, link.context.span_id) for link in run.links] == [(7, 9)]
    assert run.context.trace_id != 7
    assert HEADERS[-1]["baggage"] == "customer=17"
    assert lab.of("shop-mug", r.RunStarted)[0].trace == traceparent(other.get_span_context())


@virtual
async def test_the_metrics_count_the_runs_that_are_not_traced_too(lab: Lab):
    """They are sums: of a tenth of the runs they would be a tenth of the tokens."""
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower(sample=0.0)) as app:
        for item in ("mug", "cup"):
            await app.run(shop, item)
    assert traced.spans() == []
    points = traced.points()
    usage = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert usage == {"input": 80, "output": 4}
    assert points["gen_ai.client.operation.duration"][0].count == 2


@virtual
async def test_a_submitted_run_is_linked_to_its_submitter(lab: Lab):
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower(), recover=True) as app:
        with traced.provider.get_tracer("web").start_as_current_span("request") as request:
            await app.submit(shop, "mug")
            assert trace.get_current_span() is request  # a submission drives nothing here
        while not traced.spans("invoke_agent"):
            await lab.pass_time(seconds=1)
    run = traced.one("invoke_agent")
    assert [link.context.span_id for link in run.links] == [request.get_span_context().span_id]


@tool(idempotency=Key.forever(), retry=Retry(attempts=3))
async def flaky(item: str) -> str:
    assert current_operation().key
    if current_operation().attempt == 1:
        raise NotSent("the line is busy")
    raise Rejected("no such thing: mug", code="unknown_item")


@agent(run_id="try-{item}", tools=[flaky])
async def trying(run: Run, item: str) -> str:
    return (await flaky.outcome(item)).status


@virtual
async def test_each_attempt_and_each_wait_is_a_span(lab: Lab):
    traced = Traced()
    async with lab.app(trying, telemetry=traced.follower()) as app:
        assert await app.run(trying, "mug") == "failed"
    attempts = traced.spans("execute_tool")
    assert [(text(one, "beforehand.attempt"), text(one, "error.type")) for one in attempts] == [
        (1, "not_sent"),
        (2, "unknown_item"),
    ]
    assert [one.status.is_ok for one in attempts] == [False, False]
    assert "mug" not in str([one.status.description for one in attempts])  # the text of an error is a content
    assert traced.one("wait flaky").end_time <= attempts[1].start_time


class Stuck(SpanExporter):
    """An exporter whose system never answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.asked += 1
        self.answer.wait(60)
        return SpanExportResult.FAILURE


def test_nothing_waits_for_an_exporter_that_hangs(tmp_path, monkeypatch: pytest.MonkeyPatch):
    from beforehand import Beforehand

    monkeypatch.setattr(following, "CLOSE_S", 0.01)
    monkeypatch.setattr(following, "DELAY_S", 0.0)
    stuck = Stuck()

    async def main() -> None:
        follower = Traced(SimpleSpanProcessor(stuck)).follower()
        async with Beforehand(tmp_path / "shop.db", agents=[shop], telemetry=follower) as app:
            for item in range(20):
                assert await app.run(shop, f"mug{item}") == f"charged mug{item}"

    asyncio.run(asyncio.wait_for(main(), 30))
    stuck.answer.set()
    assert stuck.asked == 1


class Broken(SpanExporter):
    """An exporter that raises, as a processor passes it on."""

    def export(self, spans: Any) -> SpanExportResult:
        raise ValueError("the collector is down")


@virtual
async def test_no_run_fails_for_a_processor_that_raises(lab: Lab, caplog: pytest.LogCaptureFixture):
    class Raising(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise ValueError("the collector is down")

        def on_end(self, span: Any) -> None:
            raise ValueError("the collector is down")

    follower = Traced(Raising(Broken())).follower()
    async with lab.app(shop, telemetry=follower) as app:
        assert await app.run(shop, "mug") == "charged mug"
    assert sum("the collector is down" in message for message in caplog.messages) == 1


class NoAttempts(SimpleSpanProcessor):
    """A processor that cannot begin spans of attempts."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.name.startswith("execute_tool"):
            raise ValueError("the collector is down")


@virtual
async def test_no_tool_fails_for_a_span_that_cannot_be_begun(lab: Lab, caplog: pytest.LogCaptureFixture):
    kept = Traced()
    follower = Traced(NoAttempts(kept.exporter)).follower()
    async with lab.app(shop, telemetry=follower) as app:
        assert await app.run(shop, "mug") == "charged mug"
    run = kept.one("invoke_agent")
    sent = [context_of(headers["traceparent"]) for headers in HEADERS]
    assert [one.span_id for one in sent if one] == [run.context.span_id] * 2
    assert sum("the collector is down" in message for message in caplog.messages) == 1


@virtual
async def test_a_span_of_an_attempt_begins_when_it_is_asked_for(lab: Lab):
    begun: list[str] = []
    seen: list[int] = []
    kept = Traced()

    class Noting(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            begun.append(span.name)

    @tool
    async def send(how: str) -> None:
        if how == "as a client":
            trace.get_current_span().set_attribute("client", how)
        seen.append(begun.count("execute_tool send"))

    @agent(run_id="s-{name}", tools=[send])
    async def desk(run: Run, name: str) -> None:
        await send("as a client")
        await send("with no client")

    async with lab.app(desk, telemetry=Traced(Noting(kept.exporter)).follower()) as app:
        await app.run(desk, "ann")
    assert seen == [1, 1]
    assert [text(span, "client") for span in kept.spans("execute_tool")] == ["as a client", None]


@virtual
async def test_giving_on_begins_no_branch_of_the_agent(lab: Lab):
    """A branch that begins after a commit of agent code is found again in a replay, which commits nothing."""

    async def answer(question: str) -> str:
        return question

    @agent(run_id="t-{name}")
    async def desk(run: Run, name: str) -> str:
        await asyncio.sleep(1)  # what was noted before is given on by then
        await run.sleep(timedelta(milliseconds=300))
        await asyncio.sleep(1)
        first = await asyncio.create_task(run.decide(answer, name))
        await run.sleep(timedelta(minutes=1))
        return f"{first} {await asyncio.create_task(run.decide(answer, 'last'))}"

    async with lab.app(desk, telemetry=Traced().follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    await lab.pass_time(minutes=2)
    async with lab.app(desk, telemetry=Traced().follower()) as app:
        assert await app.run(desk, "ann") == "ann last"


@virtual
async def test_what_is_committed_while_the_last_batch_was_given_is_not_left_behind(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """The event loop may run a commit between the last look at the queue and the end of the task that looked."""
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower()) as app:
        journal = cast("following.FollowedJournal", app.engine.journal)
        note, later = journal._note, list[tuple[Any, ...]]()

        class Threads:
            async def call(self, work: Any) -> None:
                work()
                while later:
                    asyncio.get_running_loop().call_soon(note, *later.pop())

        monkeypatch.setattr(journal, "_environment", replace(journal._environment, threads=Threads()))
        monkeypatch.setattr(journal, "_note", lambda *noted: later.append(noted))
        assert await app.run(shop, "mug") == "charged mug"
        note(*later.pop(0))
        await lab.pass_time(seconds=1)
    assert len(traced.spans("invoke_agent")) == 1


@virtual
async def test_a_backlog_is_bounded_and_what_is_left_out_spoils_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(following, "BACKLOG", 3)
    monkeypatch.setattr(following, "DELAY_S", 3600.0)
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower()) as app:
        for item in range(10):
            assert await app.run(shop, f"mug{item}") == f"charged mug{item}"
        await lab.pass_time(hours=2)
        await app.run(shop, "cup")
    steps = [(text(span, "beforehand.run"), text(span, "beforehand.step")) for span in traced.spans("execute_tool")]
    assert len(steps) == len(set(steps)) < 22
    assert sum("falls behind" in message for message in caplog.messages) >= 1


def test_bad_input_is_named():
    with pytest.raises(UsageError, match=r"sample=1\.5 is not a share"):
        OpenTelemetry(sample=1.5)
    for wrong in ("", "00-1-2-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'x' * 32}-{'1' * 16}-01", "\0", "-" * 3):
        assert context_of(wrong) is None
    assert timedelta(seconds=following.DELAY_S) < timedelta(seconds=1)


@virtual
async def test_a_follower_follows_one_app(lab: Lab):
    follower = Traced().follower()
    async with lab.app(shop, telemetry=follower):
        with pytest.raises(UsageError, match="follows another app"):
            lab.make(shop, telemetry=follower)


@pytest.mark.parametrize("given", ["otel", 7, OpenTelemetry, [None]])
def test_telemetry_that_cannot_follow_is_refused_by_name(tmp_path: Path, given: Any):
    with pytest.raises(UsageError, match="cannot follow an app"):
        Beforehand(tmp_path / "desk.db", telemetry=given)


def test_a_second_one_that_traces_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="two of telemetry= trace the runs"):
        Beforehand(tmp_path / "desk.db", telemetry=[OpenTelemetry(), Prometheus(), OpenTelemetry()])
