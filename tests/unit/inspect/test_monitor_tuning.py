"""Bounds of the monitors from a file: every field reaches its rule, and every fault is named."""

from typing import Any

import pytest
from msgspec.structs import asdict

from beforehand.errors import UsageError
from beforehand.inspect.monitors.rules import (
    DueRun,
    MissedFiring,
    MonitorSettings,
    Silence,
    late_schedules,
    undriven,
    without_progress,
)
from beforehand.inspect.monitors.tallies import DAY_MS, HOUR_MS
from beforehand.inspect.monitors.tuning import tuned

WHOLE = {
    "silent": "2h", "recent": "12h", "history": "7d", "versions": "3h", "late": "20m", "queue": "5m",
    "writes": 21, "least": 4, "runs": 31, "far": 8, "yes": 40, "chance": 0.001, "outliers": 0, "off": ["cost"],
}  # fmt: skip


def test_every_field_is_read():
    found = tuned({**WHOLE, "agents": {"desk": {"least": 9, "off": []}}}, "here")
    own = found.of("desk")
    assert (own.least, own.off, own.silent_ms, own.runs) == (9, (), 2 * HOUR_MS, 31)
    assert found.of("other") is found
    assert (found.recent_ms, found.past_ms, found.off) == (DAY_MS // 2, 7 * DAY_MS, ("cost",))
    changed = {name for name, value in asdict(found).items() if value != asdict(MonitorSettings())[name]}
    assert changed == set(MonitorSettings.__struct_fields__), "each bound can be tuned"


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"silnt": "1h"}, "silnt: unknown field; did you mean silent?"),
        ({"silent": 3}, "silent: 3 is not a duration"),
        ({"silent": "0s"}, "silent: '0s' is not a duration"),
        ({"recent": "3d"}, "recent: at most 2d"),
        ({"far": 3}, "far: 3 is not a power of 2"),
        ({"far": 1}, "far: 1 is not a power of 2"),
        ({"least": True}, "least: True is not a number"),
        ({"yes": 0}, "yes: 0 is not a number"),
        ({"chance": 1}, "chance: 1 is not a share"),
        ({"outliers": -0.1}, "outliers: -0.1 is not a share"),
        ({"off": "cost"}, "off: not a list of rules"),
        ({"off": ["costs"]}, "off: 'costs' is not a rule; did you mean cost?"),
        ({"agents": 3}, "agents: not a table of agents"),
        ({"agents": {"desk": 3}}, "agents.desk: not a table"),
        ({"agents": {"desk": {"recent": "1h"}}}, "agents.desk.recent: unknown field"),
        ({"agents": {"desk": {"least": 0}}, "late": "soon"}, "agents.desk.least: 0 is not a number"),
    ],
)
def test_a_fault_is_named_with_its_place(table: dict[str, Any], fault: str):
    with pytest.raises(UsageError) as refused:
        tuned(table, "pyproject.toml: [tool.beforehand.monitors]")
    assert fault in refused.value.message
    assert refused.value.message.startswith("pyproject.toml: [tool.beforehand.monitors] cannot be used: ")


def test_rules_judge_an_agent_by_its_own_bounds():
    patient = MonitorSettings(silent_ms=10 * HOUR_MS, late_ms=10 * HOUR_MS)
    settings = MonitorSettings(silent_ms=HOUR_MS, late_ms=HOUR_MS, agents={"calm": patient})
    now = 5 * HOUR_MS
    silent = without_progress([Silence(one, "r", 0, now, "Claimed") for one in ("calm", "quick")], settings)
    late = late_schedules([MissedFiring("s", one, 0) for one in ("calm", "quick")], now, settings)
    due = undriven([DueRun(one, "r", 0) for one in ("calm", "quick")], now, settings)
    assert [one.agent for one in (*silent, *late, *due)] == ["quick"] * 3
    off = MonitorSettings(agents={"quick": MonitorSettings(off=("schedule",))})
    assert [one.rule for one in off.wanted([*late, *due])] == ["no worker"]
