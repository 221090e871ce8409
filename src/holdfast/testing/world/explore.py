"""What an exploration found: the boundary, the tool, what went wrong there, and what would prevent it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.agent.tool import Tool
from holdfast.testing.world.stage import Ended

AnyTools = Iterable[Tool[Any, Any]]


class Finding(msgspec.Struct, frozen=True):
    """One boundary at which a crash changes what the world sees."""

    boundary: int
    where: str
    what: str
    why: str = ""

    def __str__(self) -> str:
        """As a person reads it."""
        return f"a crash at boundary {self.boundary} ({self.where}):\n    {self.what}" + (
            f"\n    {self.why}" if self.why else ""
        )


class Exploration(msgspec.Struct, frozen=True):
    """All boundaries of one run. `undisturbed` are the effects of the run that nothing happened to."""

    boundaries: int
    undisturbed: Sequence[str]
    findings: Sequence[Finding]

    def __str__(self) -> str:
        """What was tried and what was found, grouped where a crash does the same at several boundaries."""
        if not self.findings:
            return f"{self.boundaries} boundaries, a crash at each: the effects are always {_listed(self.undisturbed)}"
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.what, finding.why), []).append(finding)
        lines = [
            f"{len(self.findings)} of {self.boundaries} boundaries change what the world sees.",
            f"Undisturbed, the effects are {_listed(self.undisturbed)}.",
        ]
        for same in groups.values():
            lines += ["", f"  {same[0]}"]
            if len(same) > 1:
                others = ", ".join(str(one.boundary) for one in same[1:9])
                lines.append(f"    the same at {others}{' and more' if len(same) > 9 else ''}")
        return "\n".join(lines)


def judge(
    number: int, calm: tuple[Ended, list[str]], struck: tuple[Ended, list[str]], tools: AnyTools, *, allow_unknown: bool
) -> Finding | None:
    """Compare a run with a crash at boundary `number` to the undisturbed one."""
    (calm_end, expected), (end, effects) = calm, struck
    where = end.boundaries[number - 1] if number <= len(end.boundaries) else "its end"
    by_name = {tool.name: tool for tool in tools}
    more, less = Counter(effects) - Counter(expected), Counter(expected) - Counter(effects)
    unknown = _unknown(end)
    if more:
        line = next(iter(more))
        return Finding(number, where, f"{line} happens {effects.count(line)} times", _why(by_name, _tool_of(line)))
    if unknown and allow_unknown:
        return None
    if unknown:
        what = f"{unknown} is left unknown, and a person is asked"
        return Finding(number, where, what, _why(by_name, unknown.partition("#")[0].rpartition("/")[2]))
    if less:
        line = next(iter(less))
        return Finding(number, where, f"{line} never happens ({end.status}: {end.reason or 'no reason'})")
    if end.status != calm_end.status:
        return Finding(number, where, f"the run ends as {end.status} instead of {calm_end.status}", end.reason)
    if end.result != calm_end.result:
        what = f"the run returns {end.result!r} instead of {calm_end.result!r}"
        return Finding(number, where, what, "something that is not journaled decides: use run.now(), run.uuid()...")
    return None


def _unknown(end: Ended) -> str:
    if end.history is None:
        return ""
    return next((step for step, one in end.history.operations.items() if one.phase == "unknown"), "")


def _tool_of(line: str) -> str:
    return line.partition("(")[0]


def _why(tools: dict[str, Tool[Any, Any]], name: str) -> str:
    """What the contract lacks, so that a crash here cannot be survived."""
    tool = tools.get(name)
    if tool is None:
        return "no tool's record covers it: made outside tools, or not deduped by the system that counts it"
    contract = tool.contract
    lacks = [
        *(["takes no key"] if contract.key is None else []),
        *(["declares no verify"] if not contract.verifies else []),
    ]
    if contract.key is not None:
        return f"`{name}` declares a key: does the system behind it dedupe on current_operation().key?"
    if contract.natural is not None:
        return f"`{name}` declares that repeating changes nothing, and it does"
    if contract.verifies:
        return f"`{name}` declares verify: does it find what happened, within its settle_window?"
    return f"`{name}` {' and '.join(lacks)}: a crash here leaves it unknown"


def _listed(effects: Sequence[str]) -> str:
    return ", ".join(effects) if effects else "none"
