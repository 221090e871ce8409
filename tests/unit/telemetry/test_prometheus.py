"""Metrics: what they count, what their labels hold, what a scrape costs, and what the server of the page refuses."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from beforehand import Beforehand, Natural, Run, RunSuspended, agent, tool
from beforehand.engine.queueing import take_slots
from beforehand.errors import DecisionFailed, ModelError, UsageError
from beforehand.model.usage import Usage
from beforehand.policies import Budget, Retry, RunBudget
from beforehand.queues.limits import DeclaredLimits, QueueLimits, SharedBudget
from beforehand.telemetry import following, metrics_server
from beforehand.telemetry import prometheus as prometheus_module
from beforehand.telemetry.metrics_server import host_and_port, serving
from beforehand.telemetry.prometheus import MOST, Prometheus
from beforehand.telemetry.spans import SpanValue
from tests.tidy.tree import ROOT
from tests.unit.engine.lab import DAYS, Lab, virtual
from tests.unit.engine.test_money_budgets import summed
from tests.unit.telemetry.test_opentelemetry import Answer, patient, shop, trying
from tests.unit.telemetry.tracing import Traced, text


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "do-not-show")


class Values(dict[tuple[str, frozenset[str]], float]):
    """Each sample by its name and the values of its labels, in any order."""

    def __getitem__(self, key: Any) -> float:
        return super().__getitem__((key[0], frozenset(key[1:])))


def values(page: bytes) -> Values:
    samples = [one for family in text_string_to_metric_families(page.decode()) for one in family.samples]
    return Values({(one.name, frozenset(one.labels.values())): one.value for one in samples})


def check_names(page: bytes) -> None:
    """The dashboard and the alert rules of the example name metrics of the page alone, and gauges that it may have."""
    kinds = [line.split()[2] for line in page.decode().splitlines() if line.startswith("# TYPE ")]
    kinds += [family.name for family in Prometheus().describe()]
    examples = ROOT / "examples" / "monitoring"
    for name in ("dashboard.json", "alerts.yaml"):
        named = set(re.findall(r"beforehand_\w+", (examples / name).read_text()))
        assert len(named) > 5
        assert named <= {kind + suffix for kind in kinds for suffix in ("", "_bucket")}, name


@virtual
async def test_the_page_counts_what_happened_and_reads_the_journal(lab: Lab):
    measured = Prometheus()
    async with lab.app(shop, patient, trying, telemetry=measured) as app:
        await app.engine.queues.declare(
            app.engine.journal, DeclaredLimits({"slow": QueueLimits(), "idle": QueueLimits()})
        )
        await app.run(shop, "mug")
        await app.run(trying, "mug")
        with pytest.raises(RunSuspended):
            await app.run(patient, "mug")
        await app.submit(shop, "cup", queue="slow")
        await lab.pass_time(minutes=5)
        page = await measured.scrape(app.engine)
    found = values(page)
    check_names(page)
    assert found["beforehand_attempts_total", "charge", "returned"] == 2
    assert found["beforehand_attempts_total", "flaky", "not_sent"] == 1
    assert found["beforehand_attempts_total", "flaky", "rejected"] == 1
    assert found["beforehand_model_tokens_total", "large-1", "input"] == 40
    assert found["beforehand_drives_total", "completed"] == 2
    assert found["beforehand_runs", "shop", "completed"] == 1
    assert found["beforehand_runs", "shop", "queued"] == 1
    assert found["beforehand_queue_waiting", "slow"] == 1
    assert found["beforehand_queue_oldest_seconds", "slow"] >= 300
    for name in ("waiting", "running", "oldest_seconds"):
        assert found[f"beforehand_queue_{name}", "idle"] == 0, "declared, and no run was submitted to it"
    assert found["beforehand_people_waiting", "question"] == 1
    assert found["beforehand_people_oldest_seconds", "question"] >= 300
    assert found["beforehand_findings", "no progress"] == 0
    assert found["beforehand_breaker_open", "charge"] == 0
    assert found["beforehand_commit_seconds_count",] > 5
    assert 0 < found["beforehand_lease_margin_seconds",] <= 30
    assert ("beforehand_journal_bytes", frozenset()) not in found, "a journal in memory has no file"
    # No run's id and no user's text is a label.
    assert b"mug" not in page
    assert b"cup" not in page


@pytest.mark.parametrize(
    ("begun", "submitted", "minutes", "waiting", "running", "oldest_s"),
    [
        ("", "", 10, 0, 0, 0),
        ("", "new", 10, 1, 0, 600),
        ("slept", "", 60, 0, 0, 0),
        ("slept", "", 130, 0, 0, 600),
        ("slept", "new", 10, 1, 0, 600),
        ("slept", "new", 130, 1, 0, 7800),
        ("", "busy", 10, 0, 1, 0),
        ("slept", "busy", 60, 0, 1, 0),
    ],
)
@virtual
async def test_a_queue_shows_since_when_its_oldest_run_is_ready(
    lab: Lab, begun: str, submitted: str, minutes: int, waiting: int, running: int, oldest_s: int
):
    """A run that has begun, and came due after a sleep, waits for a slot as one that has not begun."""

    @agent(run_id="{given}", tools=[])
    async def desk(run: Run, given: str) -> None:
        if given == "busy":
            await asyncio.sleep(36_000)
        await run.sleep(timedelta(hours=2))

    measured, queues = Prometheus(), DeclaredLimits({"slow": QueueLimits()})
    async with lab.app(desk, recover=True, queues=queues) as worker:
        if begun:
            await worker.submit(desk, begun, queue="slow")
            await lab.pass_time(seconds=10)
    async with lab.app(desk, recover=submitted == "busy", telemetry=measured) as app:
        if submitted:
            await app.submit(desk, submitted, queue="slow")
        await lab.pass_time(minutes=minutes)
        found = values(await measured.scrape(app.engine))
    assert found["beforehand_queue_waiting", "slow"] == waiting
    assert found["beforehand_queue_running", "slow"] == running
    assert found["beforehand_queue_oldest_seconds", "slow"] == pytest.approx(oldest_s, abs=15)


CALLS = (("unknown", "failed"), ("large-1", "answered"))
"""The models and ends under which calls are counted here. One that was not answered names no model."""


SIDES = ("input", "output")


def ends_as(*ends: Exception | str):
    """An agent that asks a model whose calls end so, one after the other."""
    left = list(ends)

    async def ask(question: str) -> Answer:
        end = left.pop(0)
        if end == "lost":
            await asyncio.sleep(10_000)
        if isinstance(end, Exception):
            raise end
        return Answer(question, Usage(input_tokens=40, output_tokens=2, model="large-1"))

    @agent(run_id="r-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        try:
            return (await run.options(retry=Retry(attempts=2)).decide(ask, name)).text
        except DecisionFailed:
            return "given up"

    return desk


@pytest.mark.parametrize(
    ("ends", "errors"),
    [
        (["answer"], [None]),
        ([ModelError("busy", code="rate_limited"), "answer"], ["refused", None]),
        ([ConnectionRefusedError("down"), "answer"], ["refused", None]),
        ([OSError("reset"), "answer"], ["failed", None]),
        ([OSError("reset"), OSError("reset")], ["failed", "unavailable"]),
        (["lost", "answer"], ["lost", None]),
        (["lost", OSError("reset")], ["lost", "unavailable"]),
    ],
    ids=str,
)
@virtual
async def test_each_call_of_a_model_is_traced_and_counted_by_its_end(
    lab: Lab, ends: list[Exception | str], errors: list[str | None]
):
    desk, traced, measured = ends_as(*ends), Traced(), Prometheus()
    if ends[0] == "lost":
        app = lab.make(desk, telemetry=traced.follower())
        await app.open()
        app.start(desk, "ann")
        await lab.pass_time(seconds=5)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(desk, telemetry=[traced.follower(), measured]) as app:
        await app.run(desk, "ann")
        await lab.pass_time(seconds=1)
        found = values(await measured.scrape(app.engine))
    spans = sorted(traced.spans("chat"), key=lambda span: span.start_time)
    assert [text(span, "error.type") for span in spans] == errors
    assert [span.status.is_ok for span in spans] == [error is None for error in errors]
    counted = {end: found.get(("beforehand_model_calls_total", frozenset({of, end})), 0) for of, end in CALLS}
    assert counted == {"failed": sum(map(bool, errors)), "answered": errors.count(None)}


def rejected(tokens: int) -> ModelError:
    """The error of a client that could not use an answer, which has been paid for all the same."""
    error = ModelError("malformed", code="malformed")
    error.reply = Answer("?", Usage(input_tokens=tokens, output_tokens=1, model="large-1"))
    return error


@pytest.mark.parametrize("budget", [None, RunBudget(tokens=10**6)], ids=["no budget", "budget"])
@pytest.mark.parametrize(
    ("ends", "tokens"),
    [
        (["answer"], 42),
        ([rejected(7), "answer"], 50),
        ([rejected(7), rejected(8)], 17),
        ([ModelError("busy", code="rate_limited"), "answer"], 42),
        ([OSError("reset"), rejected(7)], 8),
    ],
    ids=str,
)
@virtual
async def test_the_tokens_of_each_call_are_counted_once_wherever_they_are_shown(
    lab: Lab, ends: list[Exception | str], tokens: int, budget: RunBudget | None
):
    """Spans, both metrics and the costs agree, also about calls whose answer was not used."""
    desk, traced, measured = ends_as(*ends), Traced(), Prometheus()
    async with lab.app(desk, telemetry=[traced.follower(), measured]) as app:
        await app.run(desk, "ann", budget=budget)
        await lab.pass_time(seconds=1)
        found, total = values(await measured.scrape(app.engine)), await summed(app)
    used = [text(span, f"gen_ai.usage.{side}_tokens") or 0 for span in traced.spans("chat") for side in SIDES]
    assert sum(used) == tokens
    assert sum(point.sum for point in traced.points()["gen_ai.client.token.usage"]) == tokens
    assert sum(found["beforehand_model_tokens_total", "large-1", side] for side in SIDES) == tokens
    assert total.tokens == tokens


@virtual
async def test_budgets_that_runs_share_are_gauges(lab: Lab):
    measured = Prometheus()
    budgets = {
        "week": SharedBudget(agent="shop", tokens=40),
        "calls": SharedBudget(tenant="eu", model_calls=9, cost="2.50 EUR"),
        "closed": SharedBudget(tenant="us", tokens=0, effects=0),
    }
    async with lab.app(shop, telemetry=measured) as app:
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits(budgets=budgets))
        await app.run(shop, "mug")
        await lab.pass_time(minutes=1)
        with pytest.raises(RunSuspended):
            await app.run(shop, "cup")
        found = values(await measured.scrape(app.engine))
    assert found["beforehand_budget_limit", "week", "tokens"] == 40
    assert found["beforehand_budget_used", "week", "tokens"] >= 40
    assert found["beforehand_budget_reserved", "week", "tokens"] == 0
    assert (found["beforehand_budget_waiting", "week"], found["beforehand_budget_waiting", "calls"]) == (1, 0)
    assert found["beforehand_budget_limit", "calls", "model_calls"] == 9
    assert found["beforehand_budget_limit", "calls", "cost EUR"] == 2.5
    limits = {tuple(sorted(labels)) for name, labels in found if name == "beforehand_budget_limit"}
    assert limits == {
        ("tokens", "week"), ("calls", "model_calls"), ("calls", "cost EUR"), ("closed", "tokens"), ("closed", "effects"),
    }  # fmt: skip
    assert found["beforehand_budget_limit", "closed", "tokens"] == 0


@pytest.mark.parametrize(
    ("seconds", "limit", "used", "reserved"),
    [(5, "cost EUR", 0, 0.4), (15, "cost EUR", 0.4, 0), (5, "effects", 0, 1), (15, "effects", 1, 0)],
)
@virtual
async def test_what_a_call_reserves_of_a_shared_budget_and_uses_is_in_the_unit_of_its_limit(
    lab: Lab, seconds: int, limit: str, used: float, reserved: float
):
    @tool(budget=Budget(call="0.40 EUR"))
    async def pay(name: str) -> str:
        await asyncio.sleep(10)
        return name

    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    measured, budgets = Prometheus(), {"all": SharedBudget(cost="9 EUR", effects=9)}
    async with lab.app(desk, telemetry=measured, queues=DeclaredLimits(budgets=budgets)) as app:
        app.start(desk, "ann")
        await lab.pass_time(seconds=seconds)
        found = values(await measured.scrape(app.engine))
    assert found["beforehand_budget_limit", "all", limit] == 9
    assert found["beforehand_budget_used", "all", limit] == used
    assert found["beforehand_budget_reserved", "all", limit] == reserved


@virtual
async def test_the_oldest_of_what_waits_for_people_is_shown(lab: Lab):
    measured = Prometheus()
    async with lab.app(patient, telemetry=measured) as app:
        for name in ("mug", "cup"):
            with pytest.raises(RunSuspended):
                await app.run(patient, name)
            await lab.pass_time(minutes=10)
        found = values(await measured.scrape(app.engine))
    assert found["beforehand_people_waiting", "question"] == 2
    assert found["beforehand_people_oldest_seconds", "question"] == pytest.approx(1200, abs=5)
    assert found["beforehand_people_waiting", "review"] == found["beforehand_people_oldest_seconds", "review"] == 0


@pytest.mark.parametrize("first", ["question", "approval"])
@pytest.mark.parametrize("then", ["question", "approval"])
@virtual
async def test_what_a_run_asks_later_makes_its_earlier_questions_no_younger(lab: Lab, first: str, then: str):
    """A branch asks a person, and another one of the same run does so half an hour later."""

    @tool(gate="true", idempotency=Natural())
    async def pay(name: str) -> str:
        return name

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> None:
        async def asks(kind: str, minutes: int) -> None:
            await run.sleep(timedelta(minutes=minutes))
            await (run.ask("may I?", returns=str) if kind == "question" else pay(kind))

        await run.gather(asks(first, 0), asks(then, 30))

    measured = Prometheus()
    async with lab.app(desk, telemetry=measured, recover=True, **DAYS) as app:
        app.start(desk, "ann")
        await lab.pass_time(minutes=50)
        found = values(await measured.scrape(app.engine))
    begun = {kind: [age for one, age in ((first, 3000), (then, 1200)) if one == kind] for kind in (first, then)}
    for kind, ages in begun.items():
        assert found["beforehand_people_waiting", kind] == len(ages)
        assert found["beforehand_people_oldest_seconds", kind] == pytest.approx(ages[0], abs=70)


@virtual
async def test_the_time_to_a_claim_is_measured_for_slots_and_for_runs_that_came_due(lab: Lab):
    @agent(run_id="{given}", tools=[])
    async def sleeper(run: Run, given: str) -> None:
        await run.sleep(timedelta(hours=2))

    measured = Prometheus()
    async with lab.app(sleeper) as app:
        await app.engine.queues.declare(app.engine.journal, DeclaredLimits({"slow": QueueLimits()}))
        await app.submit(sleeper, "queued", queue="slow")
        with pytest.raises(RunSuspended):
            await app.run(sleeper, "slept")
        await lab.pass_time(hours=2, seconds=20)
    async with lab.app(sleeper, telemetry=measured) as app:
        assert [row.run for row in await take_slots(app.engine, 9, ())] == ["queued"]
        await app.resume("slept")
        found = values(await measured.scrape(app.engine))
    assert found["beforehand_claim_delay_seconds_count",] == 2
    assert found["beforehand_claim_delay_seconds_sum",] == pytest.approx(2 * 3600 + 2 * 20, abs=2)


def test_the_size_of_a_journal_file_is_that_of_its_file_and_log(tmp_path: Path):
    path, measured = tmp_path / "runs.db", Prometheus()

    async def main() -> Values:
        async with Beforehand(str(path), agents=[shop], telemetry=measured) as app:
            await app.run(shop, "mug")
            found = values(await measured.scrape(app.engine))
            assert found["beforehand_journal_bytes",] == sum(
                one.stat().st_size for one in (path, path.with_name("runs.db-wal"))
            )
            return found

    assert asyncio.run(main())["beforehand_lease_margin_seconds",] > 0


@virtual
async def test_scrapes_read_the_journal_no_more_often_than_its_cost_allows(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    measured, read = Prometheus(), 0
    take = prometheus_module.read_samples

    async def slow(engine: Any, **drives: bool) -> Any:
        nonlocal read
        read += 1
        await asyncio.sleep(3)  # longer than a scrape waits
        return await take(engine, **drives)

    monkeypatch.setattr(prometheus_module, "read_samples", slow)
    async with lab.app(shop, telemetry=measured) as app:
        page = await measured.scrape(app.engine)
        assert b"beforehand_runs{" not in page  # it did not wait longer
        assert b"beforehand_commit_seconds" in page
        await app.run(shop, "mug")
        for _ in range(70):
            await lab.pass_time(seconds=1)
            await measured.scrape(app.engine)
        assert read == 2  # of three seconds each, in more than a minute
        page = await measured.scrape(app.engine)
        assert values(page)["beforehand_runs", "shop", "completed"] == 1
        assert values(page)["beforehand_journal_age_seconds",] < 70


@virtual
async def test_a_reading_that_fails_leaves_the_counters(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    measured = Prometheus()

    async def failing(engine: Any, **_: bool) -> Any:
        raise OSError("the disk is gone")

    async with lab.app(shop, telemetry=measured) as app:
        await app.run(shop, "mug")
        await lab.pass_time(seconds=1)
        monkeypatch.setattr(prometheus_module, "read_samples", failing)
        page = await measured.scrape(app.engine)
    assert values(page)["beforehand_attempts_total", "charge", "returned"] == 1
    assert b"beforehand_runs{" not in page


@virtual
async def test_gauges_that_cannot_be_read_again_are_given_with_their_age(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    measured = Prometheus()

    async def failing(engine: Any, **_: bool) -> Any:
        raise OSError("the disk is gone")

    async with lab.app(shop, telemetry=measured) as app:
        await app.run(shop, "mug")
        await measured.scrape(app.engine)
        monkeypatch.setattr(prometheus_module, "read_samples", failing)
        for _ in range(3):
            await lab.pass_time(minutes=10)
            found = values(await measured.scrape(app.engine))
    assert found["beforehand_runs", "shop", "completed"] == 1
    assert found["beforehand_journal_age_seconds",] == pytest.approx(1800, abs=5)


@virtual
async def test_readings_that_fail_rest_as_long_as_others(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    measured, readings = Prometheus(), list[float]()

    async def failing(engine: Any, **_: bool) -> Any:
        readings.append(lab.loop.time())
        await lab.pass_time(seconds=2)
        raise OSError("the disk is slow, and then gone")

    monkeypatch.setattr(prometheus_module, "read_samples", failing)
    async with lab.app(shop, telemetry=measured) as app:
        for _ in range(60):
            await measured.scrape(app.engine)
            await lab.pass_time(seconds=1)
    assert len(readings) == 2


def test_labels_that_a_model_service_chooses_are_bounded():
    measured = Prometheus()
    for number in range(3 * MOST):
        attributes: dict[str, Any] = {"gen_ai.response.model": f"model-{number}"}
        measured.ended(following.Drive("run", 1), [SpanValue("chat", "chat", 0, 1, attributes)])
    found = values(prometheus_module.generate_latest(measured.registry))
    calls = [key for key in found if key[0] == "beforehand_model_calls_total"]
    assert len(calls) == MOST + 1
    assert found["beforehand_model_calls_total", "other", "answered"] == 2 * MOST


# --- the server ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "host:", ":x", "a:b:c", "1.2.3.4:99999", "x:-1", "x:٣"])
def test_an_address_that_is_none_is_refused(text: str):
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        host_and_port(text)


def test_an_address_may_leave_out_the_host():
    assert [host_and_port(one) for one in ("9464", "127.0.0.2:0", "[::1]:80")] == [
        ("127.0.0.1", 9464),
        ("127.0.0.2", 0),
        ("::1", 80),
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.5", "metrics.example.com"])
def test_metrics_are_not_served_to_other_machines(host: str):
    with pytest.raises(UsageError, match="would cross the network in clear") as refused:
        host_and_port(f"{host}:9464")
    assert "serve them on 127.0.0.1" in refused.value.next_step


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:  # it was closed before it was read
        return b""
    finally:
        writer.close()


async def page() -> tuple[str, bytes]:
    return "200 OK", b"beforehand_runs 1\n"


PAGES = {"/metrics": page}


def test_the_server_gives_one_page_and_refuses_the_rest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_server, "PATIENCE_S", 0.2)

    async def main() -> None:
        async with serving(("127.0.0.1", 0), PAGES) as port:
            with pytest.raises(UsageError, match="/metrics cannot be served on"):
                async with serving(("127.0.0.1", port), PAGES):
                    pass
            given = await asked(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n")
            assert given.startswith(b"HTTP/1.1 200 OK\r\n")
            assert given.endswith(b"\r\n\r\nbeforehand_runs 1\n")
            assert (await asked(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
            for request, status in (
                (b"GET / HTTP/1.1\r\n\r\n", b"404"),
                (b"GET /metricsx HTTP/1.1\r\n\r\n", b"404"),
                (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
                (b"\r\n\r\n", b"404"),
                (b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"200"),
                (b"GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n", b"200"),
                (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
                (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nhost: evil.example:80\r\n\r\n", b"421"),
                (b"x" * 20_000, b"400"),
                (b"GET /metrics", b""),  # and never the rest: the connection ends
            ):
                assert (await asked(port, request))[9:12] == status, request

    asyncio.run(main())


def test_a_crowd_of_silent_clients_is_bounded_and_ends():
    async def main() -> None:
        silent = []
        async with serving(("127.0.0.1", 0), PAGES) as port:
            silent += [await asyncio.open_connection("127.0.0.1", port) for _ in range(metrics_server.CONNECTIONS)]
            assert await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
            silent[0][1].close()
            await silent[0][1].wait_closed()
            while not (await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200"):
                pass
        for _, writer in silent[1:]:
            writer.close()

    asyncio.run(asyncio.wait_for(main(), 20))
