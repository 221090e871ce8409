"""What those who watch a run see of it: the whole of each span and point, whatever is sampled and whoever else watches."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client import generate_latest

from beforehand import Run, agent, tool
from beforehand.engine.current_operation import CurrentOperation
from beforehand.errors import ModelError, NotSent
from beforehand.inspect.monitors.findings import record_findings
from beforehand.inspect.monitors.rules import RULES, SilentFailure
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.telemetry.following import Drive
from beforehand.telemetry.opentelemetry import OpenTelemetry, context_of, traceparent
from beforehand.telemetry.prometheus import Prometheus
from beforehand.telemetry.spans import SpanKind, SpanValue
from tests.unit.engine.lab import Lab, virtual
from tests.unit.telemetry.test_opentelemetry import shop, trying
from tests.unit.telemetry.test_prometheus import ends_as, values
from tests.unit.telemetry.tracing import Traced, text

CHAT = {"gen_ai.operation.name": "chat"}
LARGE = {**CHAT, "gen_ai.provider.name": "example", "gen_ai.response.model": "large-1"}
UNKNOWN = {**CHAT, "gen_ai.provider.name": "_OTHER"}


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "do-not-show")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("sample", [0.0, 1.0])
@virtual
async def test_what_is_measured_is_the_same_whatever_is_sampled_and_whoever_else_follows(
    lab: Lab, sample: float, beside: bool
):
    desk = ends_as(ModelError("busy", code="rate_limited"), "answer")
    traced, measured = Traced(), Prometheus()
    followers = [traced.follower(sample=sample), measured]
    if beside:
        followers = [Prometheus(), *followers[::-1]]
    async with lab.app(shop, trying, desk, telemetry=followers) as app:
        await app.run(shop, "mug")
        await app.run(trying, "mug")
        await app.run(desk, "ann")
        await lab.pass_time(seconds=1)
        page = values(await measured.scrape(app.engine))
    tokens, seconds = (traced.points()[f"gen_ai.client.{name}"] for name in ("token.usage", "operation.duration"))
    large, own = LARGE, {**UNKNOWN, "gen_ai.response.model": "large-1"}
    assert by_attributes(tokens, "sum") == by(
        ({**large, "gen_ai.token.type": "input"}, 40), ({**large, "gen_ai.token.type": "output"}, 2),
        ({**own, "gen_ai.token.type": "input"}, 40), ({**own, "gen_ai.token.type": "output"}, 2),
    )  # fmt: skip
    assert by_attributes(seconds, "count") == by((large, 1), (own, 1), ({**UNKNOWN, "error.type": "refused"}, 1))
    assert {one.explicit_bounds[:3] for one in tokens} == {(1, 4, 16)}
    assert {one.explicit_bounds[:3] for one in seconds} == {(0.01, 0.02, 0.04)}
    counted = {key: value for key, value in page.items() if key[0].endswith("_total")}
    assert {(name, *sorted(labels)): value for (name, labels), value in counted.items()} == {
        ("beforehand_attempts_total", "charge", "returned"): 1, ("beforehand_attempts_total", "stock", "succeeded"): 1,
        ("beforehand_attempts_total", "flaky", "not_sent"): 1, ("beforehand_attempts_total", "flaky", "rejected"): 1,
        ("beforehand_model_calls_total", "answered", "large-1"): 2, ("beforehand_model_calls_total", "failed", "unknown"): 1,
        ("beforehand_model_tokens_total", "input", "large-1"): 80, ("beforehand_model_tokens_total", "large-1", "output"): 4,
        ("beforehand_model_tokens_total", "input", "unknown"): 0, ("beforehand_model_tokens_total", "output", "unknown"): 0,
        ("beforehand_drives_total", "completed"): 3,
    }  # fmt: skip
    assert bool(traced.spans()) == bool(sample)


def by(*points: tuple[dict[str, Any], float]) -> dict[frozenset[tuple[str, Any]], float]:
    return {frozenset(attributes.items()): value for attributes, value in points}


def by_attributes(points: list[Any], what: str) -> dict[frozenset[tuple[str, Any]], float]:
    return by(*((dict(point.attributes), getattr(point, what)) for point in points))


@virtual
async def test_the_span_of_a_drive_says_what_it_was_and_since_when(lab: Lab):
    """All of it: its times are those of its first and last records, and it says who asked for it, and in which queue."""
    traced = Traced()
    async with lab.app(shop, telemetry=traced.follower(), recover=True) as app:
        with traced.provider.get_tracer("web").start_as_current_span("request") as request:
            await app.submit(shop, "mug")
        await lab.pass_time(seconds=30)
    span = traced.one("invoke_agent")
    (claim,), (end,) = lab.of("shop-mug", r.Claimed), lab.of("shop-mug", r.RunCompleted)
    assert (span.start_time, span.end_time) == (claim.at * 10**6, end.at * 10**6)
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop", "beforehand.run": "shop-mug",
        "beforehand.queue": "default", "beforehand.run.status": "completed",
    }  # fmt: skip
    assert [(one.context.span_id, dict(one.attributes or {})) for one in span.links] == [
        (request.get_span_context().span_id, {"beforehand.link": "caller"})
    ]
    assert span.status.status_code is trace.StatusCode.UNSET
    assert {one.name: one.kind.name for one in traced.spans() if one.name != "request"} == {
        "invoke_agent shop": "INTERNAL", "execute_tool stock": "INTERNAL", "execute_tool charge": "INTERNAL",
        "chat large-1": "CLIENT",
    }  # fmt: skip
    scope = span.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.schema_url) == ("beforehand", "https://opentelemetry.io/schemas/1.41.0")


@pytest.mark.parametrize("status", ["completed", "stopped", "suspended"])
@virtual
async def test_the_span_of_a_drive_says_how_it_ended(lab: Lab, status: str):
    @agent(run_id="r-{end}", tools=[])
    async def desk(run: Run, end: str) -> None:
        if end == "stopped":
            raise ValueError("the text of a user")
        if end == "suspended":
            await run.ask("may I?", returns=str)

    traced = Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        app.start(desk, status)
        await lab.pass_time(minutes=1)
    span = traced.one("invoke_agent")
    assert text(span, "beforehand.run.status") == status
    error = "error" if status == "stopped" else None
    assert (text(span, "error.type"), span.status.is_ok) == (error, error is None)
    assert "the text of a user" not in span.to_json()


DRIVE, CLAIM = Drive("run", 1), r.Claimed(worker="w", token=1, boot="", at=1000)
STARTED = r.RunStarted(agent="desk", input=r.NOTHING, digest="")


def driving(lab: Lab, traced: Traced, namespace: str = "one", run: str = "run") -> OpenTelemetry:
    follower = traced.follower()
    follower.begin(lab.environment())
    follower.opened(namespace)
    assert follower.claimed(run, STARTED, CLAIM, "")
    return follower


@pytest.mark.parametrize(
    ("ending", "shown"),
    [
        (("", ""), ("released", None)),
        (("lost", "LeaseLost"), ("lost", "LeaseLost")),
        (("suspended", ""), ("suspended", None)),
        (("stopped", "error"), ("stopped", "error")),
    ],
)
@pytest.mark.parametrize(("at", "end"), [(1500, 1500), (1000, 1000), (400, 1000)])
@virtual
async def test_a_drive_that_is_given_back_or_lost_ends_no_earlier_than_it_began(
    lab: Lab, ending: tuple[str, str], shown: tuple[str, str | None], at: int, end: int
):
    traced = Traced()
    driving(lab, traced).released(DRIVE, at, ending)
    span = traced.one("invoke_agent desk")
    assert (text(span, "beforehand.run.status"), text(span, "error.type")) == shown
    assert (span.start_time, span.end_time) == (1000 * 10**6, end * 10**6)


@virtual
async def test_the_duration_of_a_call_of_a_model_is_in_seconds(lab: Lab):
    traced = Traced()
    driving(lab, traced).ended(DRIVE, [SpanValue("chat", "chat m", 1000, 3500, CHAT)])
    (point,) = traced.points()["gen_ai.client.operation.duration"]
    assert (point.count, point.sum, dict(point.attributes)) == (1, 2.5, CHAT)


@virtual
async def test_each_run_of_each_journal_has_a_trace_of_its_own_below_a_span_that_no_process_exports(lab: Lab):
    traced = Traced()
    for namespace in ("one", "other"):
        for run in ("run", "run-2"):
            for _process in range(2):
                driving(lab, traced, namespace, run).released(Drive(run, 1), 2000, ("completed", ""))
    spans = traced.spans("invoke_agent")
    parents = [span.parent for span in spans if span.parent is not None and span.parent.is_remote]
    assert len(spans) == len(parents) == 8
    assert len({span.context.trace_id for span in spans}) == len({parent.span_id for parent in parents}) == 4
    assert {parent.span_id for parent in parents}.isdisjoint({span.context.span_id for span in spans})


@pytest.mark.parametrize("failures", [0, 1, 2, 3])
@virtual
async def test_each_try_of_a_read_is_a_span_from_its_call_on(lab: Lab, failures: int):
    """Only the last one is on record. Each that failed lasts until the next one begins."""
    began: list[int] = []

    @tool(effect="read", retry=Retry(attempts=3))
    async def look(name: str) -> str:
        began.append(lab.clock.wall_ms() * 10**6)
        await lab.pass_time(seconds=1)
        if len(began) <= failures:
            raise NotSent("the line is busy")
        return name

    @agent(run_id="r-{name}", tools=[look])
    async def desk(run: Run, name: str) -> None:
        try:
            await look(name)
        except Exception:  # noqa: BLE001 - how a read that failed is raised is not tested here
            return

    traced = Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        await app.run(desk, "ann")
    spans = sorted(traced.spans("execute_tool look"), key=lambda span: span.start_time or 0)
    assert [span.start_time for span in spans] == began
    last = [(began[-1] + 10**9)]
    assert [span.end_time for span in spans] == [*began[1:], *last]
    assert [span.status.is_ok for span in spans] == [number > failures for number in range(1, len(began) + 1)]
    assert [text(span, "error.type") is None for span in spans] == [span.status.is_ok for span in spans]
    run = traced.one("invoke_agent").context
    names = ("beforehand.run", "gen_ai.operation.name")
    assert {(span.parent.span_id, *(text(span, name) for name in names)) for span in spans if span.parent} == {
        (run.span_id, "r-ann", "execute_tool")
    }


@virtual
async def test_every_process_draws_the_same_share_of_runs(lab: Lab):
    """A larger share has all runs of a smaller one, whichever process decides."""

    def drawn(share: float, namespace: str = "one") -> set[int]:
        follower = OpenTelemetry(sample=share)
        follower.begin(lab.environment())
        follower.opened(namespace)
        traces = [context_of(follower.claimed(f"run-{number}", STARTED, CLAIM, "")) for number in range(400)]
        return {number for number, one in enumerate(traces) if one is not None and one.trace_flags.sampled}

    shares = [drawn(share) for share in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert [len(one) for one in shares] == [
        0,
        pytest.approx(40, abs=20),
        pytest.approx(200, abs=40),
        pytest.approx(360, abs=20),
        400,
    ]
    assert all(one <= other for one, other in pairwise(shares))
    assert drawn(0.5) == shares[2]
    assert drawn(0.5, "other") != shares[2]


def counted(measured: Prometheus) -> dict[tuple[str, ...], float]:
    """Every sample of the counters and sums that is not zero, by its name and the values of its labels."""
    left_out = ("_created", "_bucket")
    found = values(generate_latest(measured.registry))
    return {
        (name, *sorted(labels)): value
        for (name, labels), value in found.items()
        if value and not name.endswith(left_out)
    }


def span(kind: SpanKind, error: str = "", **more: Any) -> SpanValue:
    return SpanValue(kind, kind, 0, 1, {name.replace("__", "."): value for name, value in more.items()}, error)


PAY = {"gen_ai__tool__name": "pay"}
ATTEMPT, LOOK = {**PAY, "beforehand__attempt__end": "returned"}, {**PAY, "beforehand__verification__verdict": "absent"}
ASKED = {"gen_ai__response__model": "m", "gen_ai__usage__input_tokens": 3, "gen_ai__usage__output_tokens": 4}


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([span("attempt", **ATTEMPT)] * 2, {("beforehand_attempts_total", "pay", "returned"): 2}),
        ([span("verify", **LOOK)], {("beforehand_verifications_total", "absent", "pay"): 1}),
        ([span("wait", **PAY), span("person", **PAY)], {}),
        (
            [span("chat", **ASKED)] * 3,
            {
                ("beforehand_model_calls_total", "answered", "m"): 3,
                ("beforehand_model_tokens_total", "input", "m"): 9,
                ("beforehand_model_tokens_total", "m", "output"): 12,
            },
        ),
        ([span("chat", "refused")], {("beforehand_model_calls_total", "failed", "unknown"): 1}),
    ],
    ids=["attempt", "look", "waits", "answer", "no answer"],
)
def test_each_span_is_counted_as_what_it_stands_for(spans: list[SpanValue], expected: dict[tuple[str, ...], float]):
    measured = Prometheus()
    measured.ended(DRIVE, spans)
    assert counted(measured) == expected


def test_drives_commits_and_claims_are_counted():
    measured = Prometheus()
    for ending in (("completed", ""), ("completed", ""), ("stopped", "error"), ("lost", "LeaseLost"), ("", "")):
        measured.released(DRIVE, 0, ending)
    measured.forget(DRIVE)
    measured.committed(0.003, 5)
    measured.committed(0.5, 0)
    measured.claimed_after(90.0)
    assert counted(measured) == {
        ("beforehand_drives_total", "completed"): 2, ("beforehand_drives_total", "stopped"): 1,
        ("beforehand_drives_total", "lost"): 1, ("beforehand_drives_total", "released"): 1,
        ("beforehand_commit_seconds_count",): 2, ("beforehand_commit_seconds_sum",): 0.503,
        ("beforehand_commit_records_count",): 2, ("beforehand_commit_records_sum",): 5,
        ("beforehand_claim_delay_seconds_count",): 1, ("beforehand_claim_delay_seconds_sum",): 90,
    }  # fmt: skip
    found = values(generate_latest(measured.registry))
    assert [found["beforehand_commit_seconds_bucket", le] for le in ("0.002", "0.004", "0.256", "0.512")] == [
        0,
        1,
        1,
        2,
    ]
    assert [found["beforehand_commit_records_bucket", le] for le in ("0.0", "4.0", "8.0")] == [1, 1, 2]
    assert [found["beforehand_claim_delay_seconds_bucket", le] for le in ("40.96", "163.84")] == [0, 1]


@virtual
async def test_gauges_show_what_this_process_does_and_which_tools_are_held_back(lab: Lab):
    """A tool whose system is down, and a run that is driven meanwhile."""

    @tool(
        retry=Retry(attempts=100, elapsed=timedelta(hours=5), base=timedelta(milliseconds=1), cap=timedelta(seconds=2))
    )
    async def send(to: str) -> str:
        raise NotSent("down")

    @tool
    async def other(to: str) -> str:
        return to

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        await other(name)
        return await send(name)

    measured = Prometheus()
    async with lab.app(desk, tools=[send, other], telemetry=measured, hold_ms=10**9) as app:
        idle = values(await measured.scrape(app.engine))
        app.start(desk, "ann")
        await lab.pass_time(seconds=40)
        assert app.engine.breakers.wait_ms("send", retry=False) > 0
        busy = values(await measured.scrape(app.engine))
        most = (app.engine.settings.lease_ms - app.engine.settings.margin_ms) / 1000
    for name, before, then in (("send", 0, 1), ("other", 0, 0)):
        assert (idle["beforehand_breaker_open", name], busy["beforehand_breaker_open", name]) == (before, then)
    assert (idle["beforehand_runs_driven",], busy["beforehand_runs_driven",]) == (0, 1)
    assert busy["beforehand_runs", "desk", "running"] == 1
    assert idle["beforehand_lease_margin_seconds",] == most
    assert busy["beforehand_journal_age_seconds",] == 0


@virtual
async def test_findings_are_counted_by_their_rule_until_they_are_over(lab: Lab):
    """Every rule has a sample, so that an alert finds the series before the first finding."""
    measured = Prometheus()
    async with lab.app(shop, telemetry=measured) as app:
        for ids in (["no progress", "queue", "no progress again"], ["queue"]):
            rules = [rule for one in ids for rule in RULES if one.startswith(rule)]
            both = zip(ids, rules, strict=True)
            found = [SilentFailure(rule, "shop", 1, "it says so", [], "", one, 1) for one, rule in both]
            await record_findings(lab.journal, app.engine.outbox, found, lab.clock.wall_ms())
            page = values(await measured.scrape(app.engine))
            assert {rule: page["beforehand_findings", rule] for rule in RULES} == {
                rule: rules.count(rule) for rule in RULES
            }
            await lab.pass_time(minutes=10)


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("stored", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE[1:]}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}0-01", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"00-{'x' * 32}-{SPAN}-01", None),
        ("", None),
    ],
)
def test_a_context_is_stored_as_a_traceparent_and_read_back_where_it_is_one(stored: str, sampled: bool | None):
    context = context_of(stored)
    if sampled is None or context is None:
        assert (context, sampled) == (None, None)
        return
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") == (TRACE, SPAN)
    assert (context.trace_flags.sampled, context.is_remote) == (sampled, True)
    assert traceparent(context) == stored
    assert traceparent(trace.INVALID_SPAN_CONTEXT) == ""


@virtual
async def test_a_run_is_in_the_same_trace_in_every_version(lab: Lab):
    """The process that takes it up after an update continues its trace."""
    traced = Traced()
    driving(lab, traced).released(DRIVE, 2000, ("completed", ""))
    span = traced.one("invoke_agent")
    assert span.parent is not None
    digest = sha256(b"beforehand/trace/1\0one\0run").hexdigest()
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (digest[:32], digest[32:48])


@pytest.mark.parametrize("ends", ["released", "forgotten"])
@virtual
async def test_the_end_of_an_earlier_drive_of_a_run_leaves_the_span_of_the_next_one(lab: Lab, ends: str):
    """A run comes back to its process before the end of its drive before was given on."""
    traced = Traced()
    follower = driving(lab, traced)
    assert follower.claimed("run", STARTED, CLAIM, "") == "", "this process drives it already"
    assert follower.claimed("run", STARTED, r.Claimed(worker="w", token=2, boot="", at=3000), "")
    if ends == "released":
        follower.released(DRIVE, 2000, ("suspended", ""))
    else:
        follower.forget(DRIVE)
    follower.calling(CurrentOperation("run", "pay#1", "pay", 1, lambda: 9, lambda: "key"))
    trace.get_current_span().set_attribute("http.status", 200)
    follower.ended(
        Drive("run", 2),
        [SpanValue("attempt", "execute_tool pay", 3000, 4000, {"beforehand.run": "run"}, "", ("pay#1", 1))],
    )
    follower.released(Drive("run", 2), 5000, ("completed", ""))
    (span,) = traced.spans("execute_tool")
    assert text(span, "http.status") == 200
    drives = {one.context.span_id: text(one, "beforehand.run.status") for one in traced.spans("invoke_agent")}
    assert sorted(drives.values()) == (["completed", "suspended"] if ends == "released" else ["completed"])
    assert span.parent is not None
    assert drives[span.parent.span_id] == "completed"
