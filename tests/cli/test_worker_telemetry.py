"""`beforehand worker --metrics --trace --log-json`: a real worker, a real Prometheus that scrapes it, its alert rules."""

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests import forked
from tests.tidy.tree import ROOT

MONITORING = ROOT / "examples" / "monitoring"
HERE = "127.0.0.1"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (Debian: prometheus)",
)
PROGRAM = """
import json
import logging
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from beforehand import Run, agent, tool


class ToFile(SpanExporter):
    def export(self, spans):
        with Path(__file__).with_suffix(".spans").open("a") as file:
            for span in spans:
                file.write(json.dumps([span.name, format(span.context.trace_id, "032x")]) + "\\n")
        return SpanExportResult.SUCCESS


logging.basicConfig(format="of the program: %(message)s")
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)


@tool
async def refund(order: str) -> str:
    logging.warning("refunding %s", order)
    return order


@agent(run_id="{order}", tools=[refund])
async def desk(run: Run, order: str) -> str:
    return await refund(order)
"""


def beforehand(place: Path, *arguments: str) -> list[str]:
    return ["-m", "beforehand", *arguments, "--journal", str(place / "runs.db")]


def until(found: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """What a function finds once it finds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"there was no {what}")


@contextmanager
def ended_by_its_manager(started: subprocess.Popen[str]) -> Generator[subprocess.Popen[str]]:
    with started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(30)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(PROGRAM)
    for order in ("A-1", "A-2"):
        submitted = beforehand(tmp_path, "submit", "desk.py:desk", json.dumps(order))
        forked.run(submitted, cwd=tmp_path).check_returncode()
    return tmp_path


@contextmanager
def worker(place: Path) -> Generator[str]:
    """A worker that has driven both runs; the address of its metrics."""
    log = place / "worker.log"
    with log.open("w") as output:
        command = beforehand(place, "worker", "desk.py:desk", "--metrics", f"{HERE}:0", "--trace")
        with ended_by_its_manager(forked.start(command, cwd=place, stderr=output, stdout=output)):
            until(lambda: "A-1 completed" in log.read_text() and "A-2 completed" in log.read_text(), "end of both runs")
            line = next(line for line in log.read_text().splitlines() if line.startswith("Metrics: "))
            yield line.removeprefix("Metrics: ")


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read().decode()


def test_a_worker_logs_lines_of_json_that_name_their_run_and_operation(place: Path):
    command = beforehand(place, "worker", "desk.py:desk", "--once", "--log-json")
    ended = forked.run(command, cwd=place)
    ended.check_returncode()
    lines = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    found = [(one["run"], one["operation"]) for one in lines if one["message"].startswith("refunding")]
    assert sorted(found) == [(order, f"{order}/refund#1") for order in ("A-1", "A-2")]
    assert "of the program" not in ended.stderr


def test_a_worker_serves_metrics_and_traces_with_the_sdk_of_the_program(place: Path):
    with worker(place) as address:
        page = until(
            lambda: (
                page if 'beforehand_attempts_total{end="returned",tool="refund"} 2.0' in (page := read(address)) else ""
            ),
            "count of both calls",
        )
        assert 'beforehand_runs{agent="desk",state="completed"} 2.0' in page
        assert 'beforehand_queue_waiting{queue="default"} 0.0' in page or "beforehand_queue_waiting" not in page
    spans = [json.loads(line) for line in (place / "desk.spans").read_text().splitlines()]
    assert sorted(name for name, _ in spans) == sorted(2 * ["execute_tool refund", "invoke_agent desk"])
    assert len({trace for _, trace in spans}) == 2


def test_a_worker_says_that_no_sdk_is_configured(tmp_path: Path):
    (tmp_path / "desk.py").write_text(PROGRAM.replace("trace.set_tracer_provider(provider)", ""))
    command = beforehand(tmp_path, "worker", "desk.py:desk", "--once", "--trace")
    ended = forked.run(command, cwd=tmp_path)
    ended.check_returncode()
    assert "No OpenTelemetry SDK is configured" in ended.stderr


@needs_prometheus
def test_a_real_prometheus_scrapes_a_worker_and_evaluates_the_rules(place: Path):
    with socket.socket() as free:
        free.bind((HERE, 0))
        port = free.getsockname()[1]
    with worker(place) as address, (place / "prometheus.log").open("w") as output:
        target = address.removeprefix("http://").removesuffix("/metrics")
        scraped = {"job_name": "beforehand", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
        rules = [str(MONITORING / "alerts.yaml")]
        (place / "prometheus.yaml").write_text(json.dumps({"scrape_configs": [scraped], "rule_files": rules}))
        command = ["prometheus", "--config.file=prometheus.yaml", f"--web.listen-address={HERE}:{port}"]
        command.append("--storage.tsdb.path=tsdb")
        with ended_by_its_manager(subprocess.Popen(command, cwd=place, stderr=output, stdout=output, text=True)):
            found = until(lambda: queried(port, 'beforehand_attempts_total{tool="refund"}'), "scraped counter")
            assert [(one["metric"]["end"], one["value"][1]) for one in found] == [("returned", "2")]
            loaded = json.loads(read(f"http://{HERE}:{port}/api/v1/rules"))["data"]["groups"][0]["rules"]
            assert len(loaded) == 9
            assert {rule.get("lastError") for rule in loaded} <= {None, ""}
            assert queried(port, "count(beforehand_people_oldest_seconds)")[0]["value"][1] == "5"
            assert queried(port, "beforehand_claim_delay_seconds_count")[0]["value"][1] == "2"
            for gauge in ("beforehand_journal_bytes", "beforehand_lease_margin_seconds"):
                assert float(queried(port, gauge)[0]["value"][1]) > 0
            for expression in dashboard_expressions():  # `read` raises for one that Prometheus cannot evaluate
                read(f"http://{HERE}:{port}/api/v1/query?query={quote(expression.replace('$__rate_interval', '1m'))}")


def dashboard_expressions() -> list[str]:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def queried(port: int, query: str) -> list[Any]:
    try:
        answer = json.loads(read(f"http://{HERE}:{port}/api/v1/query?query={quote(query)}"))
    except OSError:
        return []
    found: list[Any] = answer["data"]["result"]
    return found


@needs_prometheus
def test_the_alert_rules_raise_what_they_should_and_nothing_else():
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        ended = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nowhere", "'nowhere' is not HOST:PORT"),
        pytest.param("127.0.0.1:1x", "is not HOST:PORT", marks=pytest.mark.deep),
        ("192.0.2.1:9", "would cross the network in clear"),
    ],
)
def test_an_address_that_cannot_be_used_is_named(place: Path, where: str, said: str):
    command = beforehand(place, "worker", "desk.py:desk", "--once", "--metrics", where)
    ended = forked.run(command, cwd=place)
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())
