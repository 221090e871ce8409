"""A desk whose worker sends spans and metrics to a collector, as the variables of OpenTelemetry say."""

import asyncio
import os
from datetime import timedelta

import msgspec
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

from beforehand import Key, Run, Secret, agent, current_operation, tool
from beforehand.errors import NotSent
from beforehand.loop import ModelCall, ModelLoop, ModelReply, ModelRequest, OnText
from beforehand.model.usage import Usage
from beforehand.policies import Retry

provider = TracerProvider()
processor = SimpleSpanProcessor if os.environ.get("AT_ONCE") else BatchSpanProcessor
provider.add_span_processor(processor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))


class Clerk:
    """A model that reserves, then charges, and repeats in each answer what it was asked."""

    name = "clerk-1"
    wants = ("reserve", "charge")

    async def answer(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        turn, asked = sum(message.role == "assistant" for message in request.messages), request.messages[0].text
        calls = tuple(ModelCall(f"c{turn}", name, f'{{"item": "{asked}"}}') for name in self.wants[turn : turn + 1])
        usage = Usage(input_tokens=40, output_tokens=2, cached_tokens=30, model="clerk-1", service="example")
        return ModelReply(asked, calls, "calls" if calls else "end", usage)


@tool(idempotency=Key.forever(), retry=Retry(base=timedelta(milliseconds=10)))
async def reserve(item: str) -> str:
    """The text of the first call's error holds what no span may hold."""
    held = f"{item} with {Secret('PASSWORD').reveal()} under {current_operation().key}"
    if current_operation().attempt == 1:
        raise NotSent(f"the line is busy for {held}")
    return f"reserved {held}"


@tool(idempotency=Key.forever())
async def charge(item: str) -> str:
    assert current_operation().key
    if "HANGS" in os.environ:
        print("charging", flush=True)
        await asyncio.Event().wait()
    return f"charged {item}"


loop = ModelLoop(Clerk(), "Help.")


class Order(msgspec.Struct):
    """What a customer wishes."""

    number: int
    wish: str


@agent(run_id="order-{order.number}", tools=[reserve, charge])
async def desk(run: Run, order: Order) -> str:
    said = await loop(run, order.wish)
    return f"{said} {await run.ask(f'Is it {order.wish}?', returns=str)}"
