"""Drives a run that is traced, in processes that die. Each exports its spans at once to a file beside the journal."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import propagate
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.telemetry import following
from beforehand.telemetry.opentelemetry import OpenTelemetry
from tests.crash.desks import note, serve_desk


class FileExporter(SpanExporter):
    """One line for each span. What is written is kept when the process is killed."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ["EFFECTS"]).with_suffix(".spans").open("a") as file:
            for span in spans:
                file.write(json.dumps(_row(span)) + "\n")
        return SpanExportResult.SUCCESS


def _row(span: ReadableSpan) -> dict[str, object]:
    return {
        "name": span.name,
        "trace": span.context.trace_id,
        "span": span.context.span_id,
        "parent": span.parent.span_id if span.parent else 0,
        "links": [link.context.span_id for link in span.links],
        **dict(span.attributes or {}),
    }


@tool(idempotency=Key.forever())
async def book(city: str) -> str:
    """The world notes the context that an HTTP client would send."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    note(f"{city} {current_operation().key} {headers['traceparent']}")
    return city


@agent(run_id="trip-{name}", tools=[book])
async def desk(run: Run, name: str) -> str:
    return " and ".join([await book("Oslo"), await book("Lima"), await book("Rome")])


async def act(app: Beforehand, what: str) -> object:
    return await app.run(desk, what)


def telemetry() -> OpenTelemetry:
    following.DELAY_S = 0.0
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
    return OpenTelemetry(tracer_provider=provider)


if __name__ == "__main__":
    serve_desk([desk], act, telemetry=telemetry)
