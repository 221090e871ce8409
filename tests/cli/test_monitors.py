"""`beforehand monitors`: what it prints, and the status by which a program hears of a finding."""

import asyncio
from itertools import product
from pathlib import Path

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.inspect.monitors import FINDINGS, TALLIES, counting, passes
from beforehand.inspect.monitors.findings import (
    FINDING_ENTRY,
    Acknowledgement,
    acknowledge,
    record_findings,
    shown_findings,
)
from beforehand.inspect.monitors.rules import MonitorSettings, SilentFailure
from beforehand.inspect.monitors.tallies import AgentTallies
from beforehand.journal.entry_codec import values_in
from tests.cli.lab import Lab, Said


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path, {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})


def judged_while_it_runs(lab: Lab, *words: str) -> Said:
    said: list[Said] = []

    @agent(run_id="{name}")
    async def looks(run: Run, name: str) -> None:
        said.append(await asyncio.to_thread(lab.apart, "monitors", *words))

    async def ran() -> None:
        async with Beforehand(lab.journal, agents=[looks]) as app:
            await app.run(looks, "eve")

    asyncio.run(asyncio.wait_for(ran(), 60))
    return said[0]


def test_a_run_that_records_nothing_is_named_with_its_evidence(lab: Lab):
    said = judged_while_it_runs(lab, "--silent", "1ms")
    assert said.status == 1, said.err
    assert said.lines[0].startswith("! looks  no progress  ")
    assert said.lines[1].startswith("  run eve recorded nothing for ")
    assert said.lines[-2:] == ["  beforehand show eve", "1 finding, 1 run read."]
    assert lab("show", "eve").status == 0
    again = lab("monitors")
    assert (again.status, again.lines) == (0, ["Nothing was found, 1 run read."])
    assert (
        lab("monitors", "dry-run", "--silent", "1ms", "--json").json["report"]["findings"][0]["rule"] == "no progress"
    )


def test_a_time_that_is_none_is_refused(lab: Lab):
    judged_while_it_runs(lab)
    for option, value in product(
        ("--silent", "--recent", "--since"), ("0s", "soon", "2999-01-01", "-3d", "999999999h")
    ):
        said = lab("monitors", "dry-run", option, value)
        assert said.status == 2, (option, value)
        assert value in said.remarks


def test_a_past_before_the_first_record_costs_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    judged_while_it_runs(lab)
    judge, judged = passes.judged, list[int]()

    def counted(agents: dict[str, AgentTallies], at_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
        judged.append(at_ms)
        return judge(agents, at_ms, settings)

    monkeypatch.setattr(passes, "judged", counted)
    assert lab("monitors", "dry-run", "--since", "500000d").status == 0
    assert len(judged) == 1


def test_a_recent_time_that_is_not_in_whole_hours_is_refused(lab: Lab):
    judged_while_it_runs(lab)
    for words in (("monitors", "--recent", "90m"), ("monitors", "dry-run", "--recent", "30m")):
        said = lab(*words)
        assert (said.status, said.remarks.endswith("not in whole hours Next: write 12h or 1d")) == (
            2,
            True,
        )
    assert lab("monitors", "--recent", "120m").status == 0
    lab.write("pyproject.toml", '[tool.beforehand.monitors]\nrecent = "90m"\n')
    said = lab("monitors")
    assert (said.status, "recent: '90m' is not in whole hours; write 12h or 1d" in said.remarks) == (
        2,
        True,
    )


def test_passes_and_acknowledgements(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    said = judged_while_it_runs(lab, "--silent", "1ms", "--json")
    name = said.json["report"]["findings"][0]["id"]
    assert lab("monitors", "pass").lines == ["3 records counted; the counts of 0 are stored, in portions of 10,000."]
    monkeypatch.setattr(counting, "PORTION", 2)
    assert lab("monitors", "pass", "--json").json == {"records": 3, "stored": 2}
    assert lab("monitors", "pass", "--json").json == {"records": 3, "stored": 2}
    for words in (("ack",), ("ack", name), ("list", name), ("list", "--recent", "3d")):
        said = lab("monitors", *words)
        assert (said.status, said.out) == (2, ""), words
        assert "beforehand monitors" in said.remarks


def test_the_inbox_shows_what_a_worker_has_found_until_it_is_acknowledged(lab: Lab):
    found = SilentFailure(
        "cost", "desk", 1, "7 times\x1b[31m the tokens", ["run-1"], "beforehand show run-1", "5d41c7a0", 1
    )

    async def filled(*, acknowledged: bool) -> None:
        async with Beforehand(lab.journal, agents=[]) as app:
            journal, outbox = app.engine.journal, app.engine.outbox
            await record_findings(journal, outbox, [found], 1)
            if acknowledged:
                await acknowledge(journal, outbox, Acknowledgement(found.id, found.newest_ms, "ann"), 1)

    asyncio.run(filled(acknowledged=False))
    said = lab("inbox")
    assert said.lines[:3] == [
        "Nothing needs you.",
        "Silent failures  1",
        "! desk  cost  5d41c7a0  since 1970-01-01 00:00:00 UTC",
    ]
    assert "\x1b[31m" not in said.out
    assert "beforehand monitors" in said.out
    assert lab("inbox", "--json").json == []
    asyncio.run(filled(acknowledged=True))
    assert lab("inbox").lines == ["Nothing needs you."]


def test_a_worker_looks_for_silent_failures(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("beforehand.cli.worker._WATCH_EVERY_MS", 0)
    monkeypatch.setattr(counting, "PORTION", 3)
    judged_while_it_runs(lab)
    over = SilentFailure("queue", "looks", 1, "1 run waits", ["eve waits"], "beforehand queues", "77aa00ff", 1)
    Path("desk.py").write_text(
        "from beforehand import Run, agent\n\n\n@agent\nasync def desk(run: Run, name: str) -> None: ...\n"
    )

    async def shown(*findings: SilentFailure) -> int:
        async with Beforehand(lab.journal, agents=[]) as app:
            await record_findings(app.engine.journal, app.engine.outbox, findings, 1) if findings else None
            return len(await shown_findings(app.engine.journal))

    async def stored() -> int:
        async with Beforehand(lab.journal, agents=[]) as app:
            return len(await app.engine.journal.entries(f"{TALLIES}/"))

    assert asyncio.run(shown(over)) == 1
    assert lab("worker", "desk.py:desk", "--once").status == 0
    assert asyncio.run(shown()) == 0, "the worker did not find it any more"
    assert asyncio.run(stored()) == 1, "the worker has stored a portion"


def test_bounds_come_from_the_project_and_the_command_line_goes_before_them(lab: Lab):
    Path("pyproject.toml").write_text('[tool.beforehand.monitors]\nsilent = "1ms"\n')
    said = judged_while_it_runs(lab)
    assert said.lines[0].startswith("! looks  no progress  "), said.err
    past = ("monitors", "dry-run")
    assert [one["rule"] for one in lab(*past, "--json").json["report"]["findings"]] == ["no progress"]
    assert lab(*past, "--silent", "2h").status == 0
    for fields in ('off = ["no progress"]', '[tool.beforehand.monitors.agents.looks]\nsilent = "2h"'):
        Path("pyproject.toml").write_text(f'[tool.beforehand.monitors]\nsilent = "1ms"\n{fields}\n')
        assert lab(*past).status == 0, fields
    Path("pyproject.toml").write_text('[tool.beforehand.monitors]\nsilnt = "1h"\n')
    for words in (past, ("monitors",), ("worker", "--once", "desk.py:desk")):
        Path("desk.py").write_text(
            "from beforehand import Run, agent\n\n\n@agent\nasync def desk(run: Run, name: str) -> None: ...\n"
        )
        said = lab(*words)
        assert (said.status, "did you mean silent?" in said.remarks) == (2, True), words


def test_bounds_of_an_agent_that_does_not_exist_are_said(lab: Lab):
    table = "[tool.beforehand.monitors.agents"
    lab.write("pyproject.toml", f'{table}.look]\nsilent = "2h"\n{table}.looks]\nsilent = "2h"\n')
    for said in (judged_while_it_runs(lab), lab("monitors", "dry-run")):
        assert said.status == 0
        remark = f"{table}.look] judges no run: this journal was never opened with an agent look; did you mean looks?"
        assert remark in " ".join(said.remarks.split())
        assert "agents.looks]" not in said.remarks


def test_an_acknowledgement_can_end(lab: Lab):
    said: list[Said] = []

    @agent(run_id="{name}")
    async def looks(run: Run, name: str) -> None:
        found = (await asyncio.to_thread(lab.apart, "monitors", "--silent", "1ms", "--json")).json["report"][
            "findings"
        ][0]["id"]
        for until in ("2020-01-01", "soon", "1d"):
            words = ("monitors", "ack", found, "--silent", "1ms", "--until", until, "--json")
            said.append(await asyncio.to_thread(lab.apart, *words))
        said.append(await asyncio.to_thread(lab.apart, "monitors", "list", "--until", "1d"))

    async def ran() -> None:
        async with Beforehand(lab.journal, agents=[looks]) as app:
            await app.run(looks, "eve")

    asyncio.run(asyncio.wait_for(ran(), 120))
    assert [one.status for one in said] == [2, 2, 0, 2], [one.err for one in said]
    assert "is over" in said[0].remarks

    async def kept() -> list[Acknowledgement]:
        async with Beforehand(lab.journal, agents=[]) as app:
            entries = await values_in(app.engine.journal, FINDINGS, FINDING_ENTRY)
            return [entry for entry in entries if isinstance(entry, Acknowledgement)]

    (seen,) = asyncio.run(kept())
    assert seen.until_ms > seen.newest_ms
