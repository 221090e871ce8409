"""Metrics for Prometheus: counters of what this process commits, and gauges that are read from the journal.

Labels have few values: names of tools, agents and queues, and words of ours. None is a run's id or a user's text. The
gauges describe the whole journal, so every process that serves them gives the same ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.engine.process import newest_limits
from beforehand.engine.shared_budgets import uses_now, waiting_by_budget
from beforehand.errors import UsageError
from beforehand.inspect.monitors.findings import shown_findings
from beforehand.inspect.monitors.rules import RULES
from beforehand.inspect.reader import waits_of
from beforehand.installation import extra_command
from beforehand.journal.port import Journal, QueueState, StatusFilter
from beforehand.model.money import BILLION, counter_currency
from beforehand.model.system import is_system
from beforehand.model.waits import PEOPLE
from beforehand.queues.limits import Declaration, DeclaredLimits
from beforehand.telemetry import conventions as c
from beforehand.telemetry.following import LOG, Drive
from beforehand.telemetry.spans import SpanValue

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily
except ImportError as error:
    raise UsageError(
        "metrics need prometheus-client, which is not installed",
        known=f"{type(error).__name__}: {error}",
        next_step=extra_command("prometheus"),
    ) from error

if TYPE_CHECKING:
    from beforehand.engine.engine import Engine
    from beforehand.engine.environment import Environment

MOST: Final = 100
"""How many values a label may have that other systems choose. Further ones count as `other`."""
REST_SHARE: Final = 20
"""The journal is read again once this many times the duration of the last reading has passed, and a second at least."""
PATIENCE_S: Final = 2.0
"""How long a scrape waits for the journal. Then it gets the last reading, with its age."""


class Sample(msgspec.Struct, frozen=True):
    """One value of a gauge."""

    name: str
    labels: dict[str, str]
    value: float


_GAUGES: Final = {
    "beforehand_runs": "Runs of the journal, by agent and state.",
    "beforehand_queue_waiting": "Runs of a queue that have not begun.",
    "beforehand_queue_running": "Runs of a queue that a worker drives.",
    "beforehand_queue_oldest_seconds": "How long the oldest run of a queue has been ready.",
    "beforehand_people_waiting": "Things that wait for a person, by kind. A review is an unknown outcome.",
    "beforehand_people_oldest_seconds": "How long the oldest of them has waited.",
    "beforehand_budget_limit": "The limit of a budget that runs share, for its present day or hour.",
    "beforehand_budget_used": "How much of it was used in that time.",
    "beforehand_budget_reserved": "How much of it calls in flight have reserved.",
    "beforehand_budget_waiting": "Suspended runs that wait for a budget.",
    "beforehand_breaker_open": "1 while the breaker of a tool lets no attempt through.",
    "beforehand_findings": "Silent failures that a worker has found and no person has acknowledged, by rule.",
    "beforehand_runs_driven": "Runs that this process drives.",
    "beforehand_lease_margin_seconds": "How much longer this process acts on its lease, if it is not renewed.",
    "beforehand_journal_bytes": "The bytes of the journal on its disk, with its write-ahead log.",
    "beforehand_journal_age_seconds": "The age of this reading of the journal.",
    "beforehand_journal_read_seconds": "How long this reading of the journal took.",
}
"""Every gauge, with its help. `read_samples` gives its values."""


_WITH_WAITS: Final[tuple[StatusFilter, ...]] = ("suspended", "running", "halted")


async def read_samples(engine: Engine, *, drives: bool) -> list[Sample]:
    """The gauges, read from the journal of an app: its listing and its queues, but no records.

    `drives`: this process drives runs, so there are gauges about it, too.
    """
    journal, now = engine.journal, engine.environment.clock.wall_ms()
    found: list[Sample] = []
    for (agent, status), count in (await journal.counts()).items():
        if not is_system(agent):
            found.append(Sample("beforehand_runs", {"agent": agent, "state": status}, count))
    limits = (await newest_limits(journal) or Declaration()).limits
    queues = {one.queue: one for one in await journal.queues()}
    for name in dict.fromkeys((*limits.queues, *queues)):
        queue, labels = queues.get(name) or QueueState(name, 0, 0), {"queue": name}
        oldest = 0.0 if queue.oldest_ms is None else max(0, now - queue.oldest_ms) / 1000
        found += [
            Sample("beforehand_queue_waiting", labels, queue.waiting),
            Sample("beforehand_queue_running", labels, queue.running),
            Sample("beforehand_queue_oldest_seconds", labels, oldest),
        ]
    found += await _people(journal, now)
    found += await _budgets(journal, limits, now)
    silent = Counted(one.finding.rule for one in await shown_findings(journal))
    found += [Sample("beforehand_findings", {"rule": rule}, silent[rule]) for rule in RULES]
    for tool in engine.tools:
        is_open = engine.breakers.wait_ms(tool, retry=False) > 0
        found.append(Sample("beforehand_breaker_open", {"tool": tool}, int(is_open)))
    if (size := (await journal.storage()).bytes) is not None:
        found.append(Sample("beforehand_journal_bytes", {}, size))
    if drives:
        left = engine.lease_left_ms(journal.clock().latest_ms)
        found.append(Sample("beforehand_runs_driven", {}, len(engine.active_runs)))
        found.append(Sample("beforehand_lease_margin_seconds", {}, max(0, left) / 1000))
    return found


async def _budgets(journal: Journal, limits: DeclaredLimits, now: int) -> list[Sample]:
    """The budgets that runs share, in their present periods."""
    if not limits.budgets:
        return []
    waiting = await waiting_by_budget(journal)
    found = [Sample("beforehand_budget_waiting", {"budget": name}, waiting[name]) for name in limits.budgets]
    for name, uses in (await uses_now(journal, limits, now)).items():
        for use in uses:
            labels, most = {"budget": name, "limit": use.limit}, limits.budgets[name].most(use.limit)
            unit = BILLION if counter_currency(use.limit) else 1
            found.append(Sample("beforehand_budget_used", labels, use.used / unit))
            found.append(Sample("beforehand_budget_reserved", labels, use.reserved / unit))
            if most is not None:
                found.append(Sample("beforehand_budget_limit", labels, most / unit))
    return found


async def _people(journal: Journal, now: int) -> list[Sample]:
    """The number of things that wait for people, by kind, and the age of the oldest."""
    rows = [row for status in _WITH_WAITS for row in await journal.waiting(status)]
    since: dict[str, list[int]] = {kind: [] for kind in PEOPLE.values()}
    for row in rows:
        for wait in waits_of(row):
            if (item := PEOPLE.get(wait.kind)) is not None:
                since[item].append(wait.at or row.updated_ms)
    found: list[Sample] = []
    for kind, begun in sorted(since.items()):
        age = max(0, now - min(begun, default=now)) / 1000
        found.append(Sample("beforehand_people_waiting", {"kind": kind}, len(begun)))
        found.append(Sample("beforehand_people_oldest_seconds", {"kind": kind}, age))
    return found


class Prometheus:
    """Measures the runs of an app: `Beforehand(..., telemetry=Prometheus())`. `scrape` gives the page for Prometheus.

    One that follows no app, such as that of the console, describes the journal alone.
    The metrics are in a registry of their own, so they clash with none of the application's.
    """

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.contents: Final = False
        self.tracing: Final = None
        counter, histogram = partial(Counter, registry=self.registry), partial(Histogram, registry=self.registry)
        self._attempts: Final = counter("beforehand_attempts", "Calls of tools, by their end.", ["tool", "end"])
        self._verifications: Final = counter(
            "beforehand_verifications", "Looks at the world, by what they found.", ["tool", "verdict"]
        )
        self._calls: Final = counter("beforehand_model_calls", "Calls of models, by their end.", ["model", "end"])
        self._tokens: Final = counter("beforehand_model_tokens", "Tokens of calls of models.", ["model", "type"])
        self._drives: Final = counter(
            "beforehand_drives", "Runs that this process has driven, by how it left them.", ["state"]
        )
        half_ms_doubled = [0.0005 * 2**power for power in range(14)]
        self._seconds: Final = histogram(
            "beforehand_commit_seconds", "The time until an append was durable.", buckets=half_ms_doubled
        )
        self._records: Final = histogram(
            "beforehand_commit_records", "Records of one append.", buckets=[0, 1, 2, 4, 8, 16, 32]
        )
        self._claims: Final = histogram(
            "beforehand_claim_delay_seconds", "How long a run was due, or ready for a slot, when it was claimed.",
            buckets=[0.01 * 4**power for power in range(10)],
        )  # fmt: skip
        self.registry.register(self)
        self._environment: Environment | None = None
        self._models: Final[set[str]] = set()
        self._samples: Sequence[Sample] = ()
        self._read_s = 0.0
        self._read_at: float | None = None
        self._due_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    # --- the follower --------------------------------------------------------------------------------------------

    def begin(self, environment: Environment) -> None:
        """Follow an app. Raises `UsageError` if it follows another one."""
        if self._environment is not None:
            raise UsageError("this Prometheus follows another app", next_step="make one for each app")
        self._environment = environment

    def opened(self, namespace: str) -> None:
        """The journal is open."""

    def forget(self, drive: Drive) -> None:
        """Nothing is kept about single runs."""

    def claimed_after(self, seconds: float) -> None:
        """Count a claim."""
        self._claims.observe(seconds)

    def committed(self, seconds: float, records: int) -> None:
        """Count an append."""
        self._seconds.observe(seconds)
        self._records.observe(records)

    def ended(self, _: Drive, spans: Sequence[SpanValue]) -> None:
        """Count what has ended."""
        for one in spans:
            tool, attributes = str(one.attributes.get(c.TOOL_NAME, "")), one.attributes
            if one.kind == "attempt":
                self._attempts.labels(tool, str(attributes[c.END])).inc()
            elif one.kind == "verify":
                self._verifications.labels(tool, str(attributes[c.VERDICT])).inc()
            elif one.kind == "chat":
                model = self._bounded(str(attributes.get(c.RESPONSE_MODEL, "unknown")))
                self._calls.labels(model, "failed" if one.error else "answered").inc()
                for kind in ("input", "output"):
                    tokens = attributes.get(c.USAGE[f"{kind}_tokens"], 0)
                    self._tokens.labels(model, kind).inc(float(tokens))

    def released(self, _: Drive, _at_ms: int, ending: tuple[str, str]) -> None:
        """Count a run that this process has left."""
        self._drives.labels(ending[0] or "released").inc()

    def _bounded(self, model: str) -> str:
        """The model, whose name another system chooses; `other` beyond the first `MOST`."""
        if model not in self._models and len(self._models) >= MOST:
            return "other"
        self._models.add(model)
        return model

    # --- the page --------------------------------------------------------------------------------------------------

    async def scrape(self, engine: Engine) -> bytes:
        """The page, in Prometheus's text format, with gauges as fresh as their cost allows.

        One reading serves all scrapes until `REST_SHARE` times its duration has passed, so reading takes no more than
        five per cent of one processor, however often this is called.
        """
        if self._reading is None and asyncio.get_running_loop().time() >= self._due_at:
            self._reading = asyncio.get_running_loop().create_task(self._read(engine), name="beforehand-metrics")
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=PATIENCE_S)
        return generate_latest(self.registry)

    async def _read(self, engine: Engine) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            self._samples = await read_samples(engine, drives=self._environment is not None)
            self._read_at = loop.time()
        except Exception as error:  # noqa: BLE001 - counters are given all the same, and the age of the gauges grows
            LOG.warning("the journal could not be read for metrics: %s: %s", type(error).__name__, error)
        finally:
            self._read_s, self._reading = loop.time() - began, None
            self._due_at = loop.time() + max(1.0, REST_SHARE * self._read_s)  # also after a reading that failed

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges, for the registry."""
        families: dict[str, GaugeMetricFamily] = {}
        reading: list[Sample] = []
        if self._read_at is not None:
            age = asyncio.get_running_loop().time() - self._read_at
            reading.append(Sample("beforehand_journal_age_seconds", {}, age))
            reading.append(Sample("beforehand_journal_read_seconds", {}, self._read_s))
        for one in (*self._samples, *reading):
            family = families.get(one.name)
            if family is None:
                family = families[one.name] = GaugeMetricFamily(one.name, _GAUGES[one.name], labels=list(one.labels))
            family.add_metric(list(one.labels.values()), one.value)
        return families.values()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The names of the gauges, so that none can be declared twice."""
        return [GaugeMetricFamily(name, text) for name, text in _GAUGES.items()]
