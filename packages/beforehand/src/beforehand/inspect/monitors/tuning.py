"""Bounds of the monitors from a file: `[tool.beforehand.monitors]` of pyproject.toml, for all agents or single ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.inspect.monitors.counting import FINE_MS
from beforehand.inspect.monitors.rules import RULES, MonitorSettings
from beforehand.inspect.monitors.tallies import HOUR_MS
from beforehand.model.alike import nearest, unknown_fields
from beforehand.policies import milliseconds, written_duration

_TIMES: Final = {
    "silent": "silent_ms", "recent": "recent_ms", "history": "past_ms", "versions": "versions_ms", "late": "late_ms",
    "queue": "queue_ms",
}  # fmt: skip
_NUMBERS: Final = {"writes": "past", "least": "least", "runs": "runs", "far": "far", "yes": "yes"}
_SHARES: Final = {"chance": "chance", "outliers": "outliers"}
_OF_ALL: Final = ("recent", "history")
_FIELDS: Final = (*_TIMES, *_NUMBERS, *_SHARES, "off")


def tuned(table: Mapping[str, Any], where: str) -> MonitorSettings:
    """The settings that a table declares; `where` names it. Raises `UsageError` with every fault."""
    faults = list(unknown_fields(table, (*_FIELDS, "agents"), ""))
    base, agents = _read({name: table[name] for name in table if name in _FIELDS}, "", MonitorSettings(), faults), {}
    if base.recent_ms > FINE_MS:
        faults.append("recent: at most 2d, the time for which counts are kept by the hour")
    if base.recent_ms % HOUR_MS:
        faults.append(f"recent: {table['recent']!r} is not in whole hours; write 12h or 1d")
    declared: object = table.get("agents", {})
    if not isinstance(declared, Mapping):
        faults.append("agents: not a table of agents")
        declared = {}
    for agent, fields in cast("Mapping[str, object]", declared).items():
        if not isinstance(fields, Mapping):
            faults.append(f"agents.{agent}: not a table")
            continue
        own = cast("Mapping[str, Any]", fields)
        for_one = [name for name in _FIELDS if name not in _OF_ALL]
        faults += unknown_fields(own, for_one, f"agents.{agent}.")
        agents[agent] = _read({name: own[name] for name in own if name in for_one}, f"agents.{agent}.", base, faults)
    if faults:
        raise UsageError(
            f"{where} cannot be used: {'; '.join(faults)}",
            known="nothing was judged",
            next_step="correct it, and try it on the past: beforehand monitors dry-run",
        )
    return replace(base, agents=agents)


def _read(fields: Mapping[str, Any], where: str, base: MonitorSettings, faults: list[str]) -> MonitorSettings:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            found.update(_bound(name, value))
        except ValueError as error:
            faults.append(f"{where}{name}: {error}")
    return replace(base, **found)


def _bound(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The field of the settings, and its value. Raises `ValueError` that says what it has to be."""
    if name in _TIMES:
        span = written_duration(value) if isinstance(value, str) else None
        if span is None or milliseconds(span) <= 0:
            raise ValueError(f"{value!r} is not a duration; write 30m, 12h or 7d")
        yield _TIMES[name], milliseconds(span)
    elif name in _NUMBERS:
        if type(value) is not int or value < 1 or (name == "far" and (value < 2 or value & (value - 1))):
            raise ValueError(f"{value!r} is not {'a power of 2' if name == 'far' else 'a number from 1 on'}")
        yield _NUMBERS[name], value
    elif name in _SHARES:
        if type(value) not in (int, float) or not 0 <= cast("float", value) < 1:
            raise ValueError(f"{value!r} is not a share from 0 to below 1")
        yield _SHARES[name], float(cast("float", value))
    else:
        rules: object = value
        if not isinstance(rules, list):
            raise ValueError('not a list of rules; write off = ["versions"]')
        for one in cast("list[object]", rules):
            if one not in RULES:
                near = nearest(str(one), RULES)
                raise ValueError(f"{one!r} is not a rule; {f'did you mean {near}?' if near else ', '.join(RULES)}")
        yield "off", tuple(cast("list[object]", rules))
