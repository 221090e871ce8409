"""The page of metrics as whoever queries it reads it: the labels of each metric by their names, and what each may say."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from beforehand import Ambiguous, Run, agent, tool
from beforehand.inspect.monitors.rules import RULES
from beforehand.journal.port import Storage
from beforehand.queues.limits import DeclaredLimits, QueueLimits, SharedBudget
from beforehand.telemetry.following import Drive
from beforehand.telemetry.prometheus import Prometheus
from beforehand.telemetry.spans import SpanValue
from tests.unit.engine.lab import Lab, virtual
from tests.unit.telemetry.test_opentelemetry import patient, shop

LABELS = {
    "attempts": "end tool", "verifications": "tool verdict", "model_calls": "end model", "model_tokens": "model type",
    "drives": "state", "claim_delay_seconds": "", "commit_seconds": "", "commit_records": "", "runs": "agent state",
    "queue_waiting": "queue", "queue_running": "queue", "queue_oldest_seconds": "queue", "people_waiting": "kind",
    "people_oldest_seconds": "kind", "budget_limit": "budget limit", "budget_used": "budget limit",
    "budget_reserved": "budget limit", "budget_waiting": "budget", "journal_bytes": "", "breaker_open": "tool",
    "findings": "rule", "runs_driven": "", "lease_margin_seconds": "", "journal_age_seconds": "",
    "journal_read_seconds": "",
}  # fmt: skip
VALUES = {
    "tool": {"stock", "charge", "send"}, "end": {"returned", "succeeded", "ambiguous", "answered"},
    "verdict": {"cannot_tell"}, "model": {"large-1"}, "type": {"input", "output"}, "agent": {"shop", "patient", "desk"},
    "state": {"completed", "suspended", "queued"}, "queue": {"slow", "idle"}, "rule": {*RULES},
    "kind": {"approval", "question", "review", "handoff", "unreadable"}, "budget": {"all"},
    "limit": {"tokens", "model_calls", "effects", "cost EUR"},
}  # fmt: skip


@tool
async def send(name: str) -> str:
    raise Ambiguous("no answer")


@agent(run_id="r-{name}")
async def desk(run: Run, name: str) -> str:
    return await send(name)


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "do-not-show")


@virtual
async def test_each_metric_has_its_labels_and_each_label_says_what_its_name_says(lab: Lab, monkeypatch):
    async def storage() -> Storage:
        return Storage("desk.db", "SQLite", 4096)

    monkeypatch.setattr(lab.journal, "storage", storage)
    measured = Prometheus()
    budget = SharedBudget(tokens=9000, model_calls=9, effects=9, cost="9 EUR", unpriced="0.05 EUR")
    queues = DeclaredLimits({"slow": QueueLimits(), "idle": QueueLimits()}, budgets={"all": budget})
    async with lab.app(shop, patient, desk, telemetry=measured, queues=queues, hold_ms=10**9) as app:
        await app.run(shop, "mug")
        app.start(patient, "mug")
        app.start(desk, "ann")
        await app.submit(shop, "cup", queue="slow")
        await lab.pass_time(minutes=1)
        look = {"gen_ai.tool.name": "send", "beforehand.verification.verdict": "cannot_tell"}
        measured.ended(Drive("r-ann", 1), [SpanValue("verify", "verify send", 0, 0, {**look})])
        page = (await measured.scrape(app.engine)).decode()
    families = {one.name.removeprefix("beforehand_"): one for one in text_string_to_metric_families(page)}
    families = {name: one for name, one in families.items() if not name.endswith("_created")}
    names = {name: {frozenset(one.labels) - {"le"} for one in family.samples} for name, family in families.items()}
    assert {name: [" ".join(sorted(one)) for one in some] for name, some in names.items()} == {
        name: [labels] for name, labels in LABELS.items()
    }
    given: dict[str, set[str]] = {}
    for name, value in (pair for one in families.values() for sample in one.samples for pair in sample.labels.items()):
        given.setdefault(name, set()).add(value)
    assert {name: some for name, some in given.items() if name != "le"} == VALUES
