"""A real OpenTelemetry collector: Rotel, a compiled program that shares no code with the SDK of Python.

It decodes what it receives and forwards it in messages of its own. What arrives at the back end here is what a
collector understood.
"""

from __future__ import annotations

import gzip
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.crash.stage import PATIENCE_S, until
from tests.hosts.environments import python_of

HERE = "127.0.0.1"
ASK = "import sysconfig, rotel; print(rotel.__path__[0]); print(sysconfig.get_config_var('LIBDIR'))"


class Collected(NamedTuple):
    """A span as the collector forwarded it. `process` tells the processes that exported spans apart."""

    process: str
    name: str
    trace: str
    span: str
    parent: str
    links: dict[str, str]
    attributes: dict[str, Any]
    start_ns: int
    end_ns: int
    failed: bool
    message: str
    schema: str


class BackEnd:
    """The requests that the collector has sent, with their paths."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self._came: Final = threading.Condition()

    def receive(self, path: str, body: bytes) -> None:
        with self._came:
            self.requests.append((path, body))
            self._came.notify_all()

    def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a request after which it has happened."""
        with self._came:
            assert self._came.wait_for(happened, PATIENCE_S), [span.name for span in self.spans()]

    def spans(self, beginning: str = "") -> list[Collected]:
        """The spans whose names begin so, in the order of their beginnings: requests may overtake each other."""
        found = [
            _collected(resource, scope.schema_url, span)
            for path, body in self.requests
            if path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
            if span.name.startswith(beginning)
        ]
        return sorted(found, key=lambda one: one.start_ns)

    def total(self, metric: str, **attributes: str) -> float:
        """The sum of a histogram over all processes: the greatest that each has sent, because it sends running sums."""
        found: dict[str, float] = {}
        for process, point in self._points(metric):
            values = _values(point.attributes)
            if attributes.items() <= values.items():
                series = f"{process} {sorted(values.items())}"
                found[series] = max(point.sum, found.get(series, 0.0))
        return sum(found.values())

    def _points(self, metric: str) -> list[tuple[str, Any]]:
        return [
            (_values(resource.resource.attributes)["service.instance.id"], point)
            for path, body in self.requests
            if path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.histogram.data_points
        ]


def _collected(resource: Any, schema: str, span: Any) -> Collected:
    return Collected(
        process=_values(resource.resource.attributes)["service.instance.id"],
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links={_values(link.attributes)["beforehand.link"]: link.span_id.hex() for link in span.links},
        attributes=_values(span.attributes),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        message=span.status.message,
        schema=schema,
    )


def _values(attributes: Any) -> dict[str, Any]:
    def value(of: AnyValue) -> Any:
        return getattr(of, str(of.WhichOneof("value")))

    pairs: list[KeyValue] = list(attributes)
    return {pair.key: value(pair.value) for pair in pairs}


@contextmanager
def collector(place: Path) -> Generator[tuple[str, BackEnd]]:
    """A running collector: its address, and the back end that it forwards to. Skips where there is none."""
    command, libraries = _rotel()
    back_end = BackEnd()
    with _serving(back_end) as port, (place / "collector.log").open("w") as log:
        grpc, http = _free(), _free()
        given = {
            "otlp-grpc-endpoint": f"{HERE}:{grpc}",
            "otlp-http-endpoint": f"{HERE}:{http}",
            "exporter": "otlp",
            "otlp-exporter-protocol": "http",
            "otlp-exporter-endpoint": f"http://{HERE}:{port}",
            "batch-timeout": "20ms",
        }
        words = [command, "start", *(f"--{name}={value}" for name, value in given.items())]
        with subprocess.Popen(words, stdout=log, stderr=log, cwd=place, env=libraries) as process:
            try:
                until(lambda: _listens(http))
                yield f"http://{HERE}:{http}", back_end
            finally:
                process.terminate()
                process.wait(PATIENCE_S)


def _rotel() -> tuple[str, dict[str, str]]:
    """The program, and where it finds the library of Python that it is linked with."""
    asked = subprocess.run([python_of("collector"), "-c", ASK], capture_output=True, text=True, check=True)
    package, libraries = asked.stdout.split()
    command, variables = f"{package}/rotel-agent", {"LD_LIBRARY_PATH": libraries}
    tried = subprocess.run([command, "--version"], capture_output=True, text=True, check=False, env=variables)
    if tried.returncode != 0:
        pytest.skip(f"the collector does not start here: {tried.stderr.strip()}")
    return command, variables


@contextmanager
def _serving(back_end: BackEnd) -> Generator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            back_end.receive(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((HERE, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _free() -> int:
    with socket.socket() as free:
        free.bind((HERE, 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HERE, port), timeout=1).close()
    except OSError:
        return False
    return True
