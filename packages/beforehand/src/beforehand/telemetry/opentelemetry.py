"""Traces of runs with OpenTelemetry, by its API alone: the application configures the SDK and its exporters.

The trace of a run follows from its name, so the process that continues a run after a crash or a long wait continues the
trace. Each process that drives the run has a span of its own, linked to that of the process before and to the code that
asked for the run. Spans get the times of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from beforehand.errors import UsageError
from beforehand.installation import extra_command
from beforehand.telemetry import conventions as c
from beforehand.telemetry.following import LOG, Drive
from beforehand.telemetry.spans import SpanValue

try:
    from opentelemetry import context as context_api
    from opentelemetry import metrics, trace
except ImportError as error:
    raise UsageError(
        "tracing needs the OpenTelemetry API, which is not installed",
        known=f"{type(error).__name__}: {error}",
        next_step=extra_command("otel"),
    ) from error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext

    from beforehand.engine.current_operation import CurrentOperation
    from beforehand.engine.environment import Environment
    from beforehand.model.records import Claimed, RunStarted

SCOPE: Final = "beforehand"
"""The name of the instrumentation scope of all spans and metrics."""
_MS: Final = 1_000_000


@trace.Span.register
class _Attempt:
    """The span of an attempt. It begins once the tool or its HTTP client asks for it, and else when it is exported.

    Most tools ask for none, and spans that begin in one batch, off the event loop, cost much less.
    """

    def __init__(self, begin: Callable[[], Span]) -> None:
        self._begin = begin
        self._span: Span | None = None
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.begun(), name)

    def begun(self) -> Span:
        """The span itself."""
        with self._lock:  # a call whose time is over may still run when its end is exported
            if self._span is None:
                self._span = self._begin()
            return self._span


class _Piece(msgspec.Struct, eq=False):
    """The span of one drive of a run, the context that its spans begin in, and the attempts that are under way."""

    span: Span
    context: Context
    start_ms: int
    root: Context
    live: dict[tuple[str, int], _Attempt] = {}
    failed_reads: list[tuple[_Attempt, int]] = []


class OpenTelemetry:
    """Traces the runs of an app: `Beforehand(..., telemetry=OpenTelemetry())`.

    With `contents`, arguments and results of tools and answers of models are attributes, as the journal stores them:
    without secrets and redacted values. `sample` is the share of runs that are traced, from 0 to 1; all processes
    decide alike about a run. A run that traced code asks for is traced if that trace is. The providers are those that
    the application has set, unless others are given.

    Raises `UsageError` for a share outside of these bounds.
    """

    def __init__(
        self,
        *,
        contents: bool = False,
        sample: float = 1.0,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        if not 0 <= sample <= 1:
            raise UsageError(f"sample={sample} is not a share", next_step="give a number from 0 (none) to 1 (all runs)")
        self.contents: Final = contents
        self._bound: Final = round(sample * 2**64)
        self._tracer: Final = trace.get_tracer(SCOPE, None, tracer_provider, c.SCHEMA_URL)
        meter = metrics.get_meter(SCOPE, "", meter_provider, c.SCHEMA_URL)
        self._tokens: Final = meter.create_histogram(
            c.TOKEN_USAGE, "{token}", "Tokens of calls of models.",
            explicit_bucket_boundaries_advisory=c.TOKEN_BUCKETS,
        )  # fmt: skip
        self._seconds: Final = meter.create_histogram(
            c.DURATION, "s", "Duration of calls of models.", explicit_bucket_boundaries_advisory=c.DURATION_BUCKETS
        )
        self._environment: Environment | None = None
        self._namespace = ""
        self._pieces: Final[dict[Drive, _Piece]] = {}
        self._driven: Final[dict[str, _Piece]] = {}
        self._failed = False

    # --- the part in the engine, called in the event loop ----------------------------------------------------------

    @property
    def tracing(self) -> OpenTelemetry:
        """Its part in the engine: itself."""
        return self

    def caller(self) -> str:
        """The trace context of the code that asks for a run now."""
        return traceparent(trace.get_current_span().get_span_context())

    def claimed(self, run: str, started: RunStarted, claim: Claimed, before: str) -> str:
        """Begin the span of a drive, and make it the current one of the task that drives the run."""
        drive = Drive(run, claim.token)
        if drive in self._pieces:  # this process drives it already, and the claim will be refused
            return ""
        try:
            piece = self._begin(run, started, claim, before)
        except Exception as error:  # noqa: BLE001 - processors of the application may raise anything
            return self._warn(error)
        self._pieces[drive] = self._driven[run] = piece
        context_api.attach(piece.context)
        return traceparent(piece.span.get_span_context())

    def calling(self, current: CurrentOperation) -> None:
        """Make the span of an attempt the current one of the call."""
        piece = self._driven.get(current.run)
        if piece is None or self._environment is None:
            return
        if not piece.span.is_recording():  # then no span below it is sampled
            context_api.attach(piece.context)
            return
        now = self._environment.clock.wall_ms()
        if not current.writes and (failed := piece.live.pop((current.step, current.attempt - 1), None)) is not None:
            piece.failed_reads.append((failed, now))  # only the last try of a read is on record
        attempt = _Attempt(partial(self._begin_attempt, piece, current.tool, now))
        piece.live[current.step, current.attempt] = attempt
        context_api.attach(trace.set_span_in_context(cast("Span", attempt), piece.context))

    def _begin_attempt(self, piece: _Piece, tool: str, at_ms: int) -> Span:
        try:
            return self._tracer.start_span(f"{c.EXECUTE_TOOL} {tool}", piece.context, start_time=at_ms * _MS)
        except Exception as error:  # noqa: BLE001 - as above, and it would be raised in the tool
            self._warn(error)
            return trace.NonRecordingSpan(piece.span.get_span_context())

    def _begin(self, run: str, started: RunStarted, claim: Claimed, before: str) -> _Piece:
        asked = context_of(started.trace)
        root = trace.set_span_in_context(trace.NonRecordingSpan(self._root(run, asked)), context_api.Context())
        links: list[Link] = [
            trace.Link(found, {"beforehand.link": what})
            for what, found in (("caller", asked), ("resumed", context_of(before)))
            if found is not None
        ]
        attributes: dict[str, str] = {c.OPERATION: c.INVOKE_AGENT, c.AGENT_NAME: started.agent, c.RUN: run}
        if started.queue:
            attributes[c.QUEUE] = started.queue
        name = f"{c.INVOKE_AGENT} {started.agent}"
        span = self._tracer.start_span(name, root, links=links, attributes=attributes, start_time=claim.at * _MS)
        # Baggage of the code that asks for a run stays with the run in this process.
        return _Piece(span, trace.set_span_in_context(span), claim.at, root)

    def _root(self, run: str, asked: SpanContext | None) -> SpanContext:
        """The remote parent that every process gives to its span of this run. No process exports it."""
        digest = sha256(b"\0".join((b"beforehand/trace/1", self._namespace.encode(), run.encode()))).digest()
        trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
        sampled = asked.trace_flags.sampled if asked is not None else trace_id & (2**64 - 1) < self._bound
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
        return trace.SpanContext(trace_id or 1, span_id or 1, is_remote=True, trace_flags=flags)

    # --- the follower, called in a thread of its own -----------------------------------------------------------------

    def begin(self, environment: Environment) -> None:
        """Follow an app. Raises `UsageError` if it follows another one."""
        if self._environment is not None:
            raise UsageError("this OpenTelemetry follows another app", next_step="make one for each app")
        self._environment = environment

    def opened(self, namespace: str) -> None:
        """The journal is open."""
        self._namespace = namespace

    def claimed_after(self, seconds: float) -> None:
        """A trace does not show how long a run waited for its process."""

    def committed(self, seconds: float, records: int) -> None:
        """A trace does not show commits."""

    def forget(self, drive: Drive) -> None:
        """Drop the span of a drive. A span that is not ended is not exported."""
        self._drop(drive)

    def ended(self, drive: Drive, spans: Sequence[SpanValue]) -> None:
        """Export spans, each below the span of its drive."""
        piece = self._pieces.get(drive)
        if piece is None:
            return
        for one in spans:
            if one.kind == "chat":
                self._measure(one)
        if not piece.span.is_recording():
            return
        while piece.failed_reads:
            attempt, at = piece.failed_reads.pop()
            span = attempt.begun()
            span.set_attributes({c.OPERATION: c.EXECUTE_TOOL, c.RUN: drive.run})
            _fail(span, "failed")
            span.end(at * _MS)
        for one in spans:
            self._export(piece, one)

    def released(self, drive: Drive, at_ms: int, ending: tuple[str, str]) -> None:
        """End the span of a drive. Attempts whose end is not on record are ended by the process that records it."""
        piece = self._drop(drive)
        if piece is None:
            return
        status, error = ending
        piece.span.set_attribute(c.STATUS, status or "released")
        _fail(piece.span, error)
        piece.span.end(max(piece.start_ms, at_ms) * _MS)

    def _drop(self, drive: Drive) -> _Piece | None:
        piece = self._pieces.pop(drive, None)
        if piece is not None and self._driven.get(drive.run) is piece:
            del self._driven[drive.run]
        return piece

    def _export(self, piece: _Piece, one: SpanValue) -> None:
        attempt = piece.live.pop(one.call, None) if one.call is not None else None
        if attempt is None:
            # What began before this process took the run is not below the span of this process.
            parent = piece.context if one.start_ms >= piece.start_ms else piece.root
            kind = trace.SpanKind.CLIENT if one.kind == "chat" else trace.SpanKind.INTERNAL
            start = one.start_ms * _MS
            span = self._tracer.start_span(one.name, parent, kind, attributes=one.attributes, start_time=start)
        else:
            span = attempt.begun()
            span.set_attributes(one.attributes)
        _fail(span, one.error)
        span.end(one.end_ms * _MS)

    def _measure(self, one: SpanValue) -> None:
        """The metrics of one call of a model."""
        kept = (c.OPERATION, c.PROVIDER, c.RESPONSE_MODEL)
        attributes = {name: one.attributes[name] for name in kept if name in one.attributes}
        for kind in ("input", "output"):
            tokens = one.attributes.get(c.USAGE[f"{kind}_tokens"])
            if isinstance(tokens, int):
                self._tokens.record(tokens, {**attributes, c.TOKEN_TYPE: kind})
        if one.error:
            attributes[c.ERROR_TYPE] = one.error
        self._seconds.record((one.end_ms - one.start_ms) / 1000, attributes)

    def _warn(self, error: Exception) -> str:
        if not self._failed:
            self._failed = True
            LOG.warning("a span could not be begun (logged once): %s: %s", type(error).__name__, error)
        return ""


def has_sdk() -> bool:
    """True if the application has set a provider. Without one no span is exported."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _fail(span: Span, error: str) -> None:
    """Mark a span as failed. The text of an error may hold contents, so only its class is given."""
    if error:
        span.set_attribute(c.ERROR_TYPE, error)
        span.set_status(trace.StatusCode.ERROR)


# --- contexts as they are stored -------------------------------------------------------------------------------------


def traceparent(context: SpanContext) -> str:
    """A span context as a W3C traceparent; empty if it is not valid."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def context_of(text: str) -> SpanContext | None:
    """The span context of a W3C traceparent; None for any other text."""
    parts = text.split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    found = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return found if found.is_valid else None
