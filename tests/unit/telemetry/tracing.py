"""A tracer with the SDK's exporter in memory, and what it exported."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from beforehand.telemetry.opentelemetry import OpenTelemetry


class Traced:
    """One application with an SDK; each process of a test gets a follower of its own from it."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(processor or SimpleSpanProcessor(self.exporter))
        self._metrics = InMemoryMetricReader()
        self._meter = MeterProvider([self._metrics], shutdown_on_exit=False)

    def follower(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.provider, meter_provider=self._meter, **options)

    def spans(self, beginning: str = "") -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(beginning)]

    def one(self, beginning: str) -> ReadableSpan:
        found = self.spans(beginning)
        assert len(found) == 1, [span.name for span in self.spans()]
        return found[0]

    def points(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self._metrics.get_metrics_data()
        scopes = (
            [] if data is None else [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        )
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


def text(span: ReadableSpan, name: str) -> Any:
    assert span.attributes is not None
    return span.attributes.get(name)
