"""When the journal is read for metrics, how long a scrape waits for that, and what a page holds meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import generate_latest

from beforehand import Run, agent, tool
from beforehand.errors import UsageError
from beforehand.journal.port import ClaimRequest, NewRun, RunChange
from beforehand.telemetry import prometheus as module
from beforehand.telemetry.following import Drive
from beforehand.telemetry.prometheus import Prometheus, Sample
from beforehand.telemetry.spans import SpanValue
from tests.unit.engine.lab import Lab, virtual
from tests.unit.telemetry.test_prometheus import values

DRIVE = Drive("r-ann", 1)
SCRAPES: list[tuple[float, list[float], list[float], list[float]]] = [
    # how long a reading lasts, when scrapes begin, when they have their page, and when the journal is read
    (0, [0, 0.9, 1, 1.5, 2], [0, 0.9, 1, 1.5, 2], [0, 1, 2]),
    (0.04, [0, 1, 1.04], [0.04, 1, 1.08], [0, 1.04]),
    (0.5, [0, 1, 10.4, 10.5, 20], [0.5, 1, 10.4, 11, 20], [0, 10.5]),
    (1.9, [0, 1, 39.8, 40], [1.9, 1.9, 39.8, 41.9], [0, 40]),
    (5, [0, 1, 4, 5, 104, 105], [2, 3, 5, 5, 104, 107], [0, 105]),
]


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("lasts", "scrapes", "answered", "read"), SCRAPES)
@virtual
async def test_one_reading_serves_all_scrapes_until_it_has_rested(
    lab: Lab,
    monkeypatch: Any,
    lasts: float,
    scrapes: list[float],
    answered: list[float],
    read: list[float],
    fails: bool,
):
    began: list[float] = []
    began_s = lab.loop.time()

    async def reading(_: Any, *, drives: bool) -> list[Sample]:
        assert not drives
        began.append(round(lab.loop.time() - began_s, 3))
        await asyncio.sleep(lasts)
        if fails and len(began) > 1:
            raise OSError("the disk is gone")
        return [Sample("beforehand_runs_driven", {}, len(began))]

    async def scrape(at: float) -> tuple[float, dict[Any, float]]:
        await asyncio.sleep(at)
        page = await measured.scrape(engine)
        return round(lab.loop.time() - began_s, 3), values(page)

    monkeypatch.setattr(module, "read_samples", reading)
    measured, engine = Prometheus(), Any
    pages = await asyncio.gather(*map(scrape, scrapes))
    assert [at for at, _ in pages] == answered
    assert began == read
    for at, page in pages:
        over = [begin + lasts for begin in read if begin + lasts <= at][: 1 if fails else None]
        name = "beforehand_runs_driven", "beforehand_journal_age_seconds", "beforehand_journal_read_seconds"
        shown = [page.get((one, frozenset())) for one in name]
        expected = [len(over), at - over[-1], lasts] if over else [None, None, None]
        assert shown == [one if one is None else pytest.approx(one, abs=0.002) for one in expected]


def test_a_hundred_models_have_a_label_of_their_own_and_all_others_share_one():
    measured = Prometheus()
    for name in (*range(103), 0, 99, 100):
        measured.ended(DRIVE, [SpanValue("chat", "chat", 0, 1, {"gen_ai.response.model": f"m{name}"})])
    found = values(generate_latest(measured.registry))
    models = {f"m{number}": 2 if number in {0, 99} else 1 for number in range(100)}
    assert {model: found["beforehand_model_calls_total", model, "answered"] for model in models} == models
    assert found["beforehand_model_calls_total", "other", "answered"] == 4
    assert sum(name == "beforehand_model_calls_total" for name, _ in found) == 101


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("commit_seconds", [0.0005 * 2**power for power in range(14)]),
        ("commit_records", [0, 1, 2, 4, 8, 16, 32]),
        ("claim_delay_seconds", [0.01 * 4**power for power in range(10)]),
    ],
)
def test_the_buckets_of_a_histogram_reach_from_the_quickest_to_the_slowest(name: str, bounds: list[float]):
    """Each bound is that of its own bucket: what is as large is in it, and what is larger is not."""
    measured = Prometheus()
    for bound in bounds:
        measured.committed(bound, 0) if name == "commit_seconds" else None
        measured.committed(0, int(bound)) if name == "commit_records" else None
        measured.claimed_after(bound) if name == "claim_delay_seconds" else None
    found = values(generate_latest(measured.registry))
    buckets = {
        float(next(iter(labels))): value for (one, labels), value in found.items() if one == f"beforehand_{name}_bucket"
    }
    assert buckets == {bound: number for number, bound in enumerate(bounds, 1)} | {float("inf"): len(bounds)}


@virtual
async def test_metrics_follow_one_app_and_describe_the_runs_of_users_alone(lab: Lab):
    @tool
    async def send(to: str) -> str:
        return to

    @agent(run_id="r-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return name

    measured, apart = Prometheus(), Prometheus()
    async with lab.app(desk, telemetry=measured) as app:
        with pytest.raises(UsageError, match="follows another app"):
            lab.make(desk, telemetry=measured)
        await app.run(desk, "ann")
        completed = RunChange("completed", release=True)
        for name in ("beforehand:notices", "desk"):
            await lab.journal.commit(ClaimRequest(f"x-{len(name)}", "w1", NewRun(name, (), completed)))
        for _ in range(60):
            await app.engine.breakers.retried("send")
        assert app.engine.breakers.wait_ms("send", retry=True) > 0
        page, other = values(await measured.scrape(app.engine)), values(await apart.scrape(app.engine))
    for found in (page, other):
        assert {key: value for key, value in found.items() if key[0] == "beforehand_runs"} == {
            ("beforehand_runs", frozenset({"desk", "completed"})): 2
        }
        assert found["beforehand_breaker_open", "send"] == 0, "retries wait, and first attempts do not"
        assert ("beforehand_budget_waiting", frozenset()) not in found
    own = {"beforehand_runs_driven", "beforehand_lease_margin_seconds"}
    assert {name for name, _ in page} & own == own
    assert {name for name, _ in other} & own == set()


@virtual
async def test_a_question_beside_other_work_waits_for_a_person_too(lab: Lab):
    """The run goes on meanwhile, and so is not suspended."""

    @tool
    async def work(name: str) -> str:
        await asyncio.sleep(25)
        return name

    @agent(run_id="r-{name}", tools=[work])
    async def desk(run: Run, name: str) -> None:
        await run.gather(run.ask("may I?", returns=str), work(name))

    measured = Prometheus()
    async with lab.app(desk, telemetry=measured) as app:
        app.start(desk, "ann")
        await lab.pass_time(seconds=20)
        (line,) = await lab.journal.runs()
        found = values(await measured.scrape(app.engine))
        assert line.owner is not None
        assert found["beforehand_people_waiting", "question"] == 1
        assert found["beforehand_people_oldest_seconds", "question"] == pytest.approx(20, abs=2)
