"""What an exploration found: the boundary, the tool, what went wrong there, and what would prevent it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.agent.tool import Tool
from holdfast.testing.world.stage import Ended

AnyTools = Iterable[Tool[Any, Any]]
WIDTH: Final = 80
"""The longest line of a story, in characters; only a word that is longer stands out."""


class Finding(msgspec.Struct, frozen=True):
    """One boundary at which a crash changes what the world sees."""

    boundary: int
    where: str
    what: str
    why: str = ""

    def __str__(self) -> str:
        """As a person reads it."""
        told = [_wrapped(f"a crash at boundary {self.boundary} ({self.where}):", "  ")]
        return "\n".join(told + [_wrapped(line, "    ") for line in (self.what, self.why) if line])


class Exploration(msgspec.Struct, frozen=True):
    """All boundaries of one run. `undisturbed` are the effects of the run that nothing happened to.

    `sigkill`: the crashes were real, each in a process of its own.
    """

    boundaries: int
    undisturbed: Sequence[str]
    findings: Sequence[Finding]
    sigkill: bool = False

    def __str__(self) -> str:
        """What was tried and what was found, grouped where a crash does the same at several boundaries."""
        if not self.findings:
            always = f"the effects are always {_listed(self.undisturbed)}"
            return _wrapped(f"{self.boundaries} boundaries, a {self._death} at each: {always}", "")
        groups: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault((finding.what, finding.why), []).append(finding)
        lines = [
            f"{len(self.findings)} of {self.boundaries} boundaries change what the world sees.",
            *(["Each crash was real: each process killed with SIGKILL."] if self.sigkill else []),
            _wrapped(f"Undisturbed, the effects are {_listed(self.undisturbed)}.", ""),
        ]
        for same in groups.values():
            lines += ["", str(same[0])]
            if len(same) > 1:
                others = ", ".join(f"{one.boundary} ({one.where})" for one in same[1:9])
                lines.append(_wrapped(f"the same at {others}{' and more' if len(same) > 9 else ''}", "    "))
        return "\n".join(lines)

    @property
    def _death(self) -> str:
        return "SIGKILL" if self.sigkill else "crash"


def judge(
    number: int, calm: tuple[Ended, list[str]], struck: tuple[Ended, list[str]], tools: AnyTools, *, allow_unknown: bool
) -> Finding | None:
    """Compare a run with a crash at boundary `number` to the undisturbed one."""
    (calm_end, expected), (end, effects) = calm, struck
    where = end.boundaries[number - 1] if number <= len(end.boundaries) else "its end"
    by_name = {tool.name: tool for tool in tools}
    more, less = Counter(effects) - Counter(expected), Counter(expected) - Counter(effects)
    unknown = end.unknown
    if end.stopped == "diverged":
        what = "the run stops as diverged: after the crash its code does not come back to what is recorded"
        return Finding(number, where, what, end.reason)
    if more:
        line = next(iter(more))
        former = next((one for one in less if _is_call(line, by_name) and _tool_of(one) == _tool_of(line)), "")
        if former:
            what = f"{line} happens instead of {former}"
            return Finding(number, where, what, "the arguments depend on something that is not journaled")
        return Finding(number, where, f"{line} happens {effects.count(line)} times", _why(by_name, _tool_of(line)))
    if unknown and allow_unknown:
        return None
    if unknown:
        what = f"{unknown} is left unknown, and a person is asked"
        return Finding(number, where, what, _why(by_name, unknown.partition("#")[0].rpartition("/")[2]))
    if less:
        line = next(iter(less))
        return Finding(number, where, f"{line} never happens: the run is {end.status}", end.reason)
    if end.status != calm_end.status:
        return Finding(number, where, f"the run ends as {end.status} instead of {calm_end.status}", end.reason)
    if end.result != calm_end.result:
        what = f"the run returns {end.result!r} instead of {calm_end.result!r}"
        return Finding(number, where, what, "something that is not journaled decides: use run.now(), run.uuid()...")
    return None


def _tool_of(line: str) -> str:
    return line.partition("(")[0]


def _is_call(line: str, tools: dict[str, Tool[Any, Any]]) -> bool:
    return _tool_of(line) in tools


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


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
