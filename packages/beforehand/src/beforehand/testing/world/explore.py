"""Crashes at every boundary, and at pairs of them; the effect of each is judged and reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from beforehand.agent.tool import Tool
from beforehand.testing.faults import Effect
from beforehand.testing.world.stage import StageEnded
from beforehand.testing.world.story import TITLE, Crash, Exploration, Finding, wrapped

MOST_PAIRS: Final = 1000
"""The maximum number of pairs of crashes to try; of more, these are spread evenly."""


_OTHER_WAY: Final = (
    "after the crash the run took another way: what decides is not journaled, or branches at once end in another order"
)


class Performed(msgspec.Struct, frozen=True):
    """The end of a run, and its effects in the world."""

    end: StageEnded
    effects: Sequence[Seen]


class Rules(msgspec.Struct, frozen=True):
    """The criteria for a finding. `compares_results`: the run has to return the same."""

    allow_unknown: bool = False
    compares_results: bool = True
    crashes: int = 1
    most_pairs: int = MOST_PAIRS


class Contracts(msgspec.Struct, frozen=True):
    """The tools by name, and those that declare a key but were seen not to read it."""

    tools: Mapping[str, Tool[Any, Any]]
    keyless: Collection[str]


Perform = Callable[[Sequence[int]], Performed]
"""Perform the run, with a death at each of these boundaries, counted over all its processes."""


def search(perform: Perform, contracts: Contracts, rules: Rules) -> Exploration:
    """Crash at every boundary; then, if requested and nothing was found, at pairs of them.

    Raises `AssertionError` if the run fails by itself, or does less when repeated: its crashes could show nothing.
    """
    calm = perform(())
    if why := _hopeless(calm.end, rules):
        raise AssertionError(wrapped(f"nothing was explored: without any crash {why}", title=TITLE)) from calm.end.error
    judging = _Judge(contracts, calm, rules)
    count = len(calm.end.boundaries)
    resumed = [_resumed(judging, perform, number) for number in range(1, count + 1)]
    if judging.findings and (why := _remembered(calm, perform(()))):
        raise AssertionError(wrapped(f"nothing was explored: {why}", title=TITLE))
    pairs = [(first, then) for first, left in enumerate(resumed, 1) for then in range(1, left + 1)]
    wanted = pairs if rules.crashes > 1 else pairs[:0]
    for first, then in (tried := _spread(wanted, 0 if judging.findings else rules.most_pairs)):
        judging.judge((first, first + then), perform((first, first + then)))
    return Exploration(
        count, [one.words for one in calm.effects], judging.findings, judging.reworded, len(tried), len(wanted)
    )


def _hopeless(end: StageEnded, rules: Rules) -> str:
    """Why crashes could show nothing that is not wrong without them."""
    if end.failed or end.status == "stuck":
        return f"the run is {end.status}: {end.reason}"
    if end.unknown and not rules.allow_unknown:
        return f"{end.unknown} is left unknown: {end.asks or end.reason}"
    return ""


def _remembered(calm: Performed, again: Performed) -> str:
    """Why a second run without a crash does less than the first: a system outside still knows the keys of the first."""
    less = _left_over(calm.effects, again.effects)
    if not less or _left_over(again.effects, calm.effects):
        return ""
    return f"a second run without any crash does not do {less[0].words!r} again: reset() has to forget keys, too"


def _resumed(judging: _Judge, perform: Perform, number: int) -> int:
    """Crash there; return the number of boundaries of the resumed run."""
    struck = perform((number,))
    judging.judge((number,), struck)
    return len(struck.end.boundaries) - number


def _spread(pairs: Sequence[tuple[int, int]], most: int) -> Sequence[tuple[int, int]]:
    if len(pairs) <= most:
        return pairs
    return [pairs[place * len(pairs) // most] for place in range(most)]


class _Judge:
    """Compares runs with crashes to the undisturbed one, and keeps what it finds."""

    def __init__(self, contracts: Contracts, calm: Performed, rules: Rules) -> None:
        self.calm = calm
        self.findings: list[Finding] = []
        self.reworded: list[str] = []
        self._contracts = contracts
        self._rules = rules

    def judge(self, kills: Sequence[int], struck: Performed) -> None:
        """One run whose processes died at these boundaries."""
        rewording = _rewording(self._contracts, self.calm.effects, struck.effects)
        if rewording and rewording not in self.reworded:
            self.reworded.append(rewording)
        found = self._difference(struck, reworded=bool(rewording))
        if found is not None:
            self.findings.append(Finding(_crashes(kills, struck.end.boundaries), *found))

    def _difference(self, struck: Performed, *, reworded: bool) -> tuple[str, str] | None:
        """The gravest difference, and its reason."""
        calm, end = self.calm.end, struck.end
        if end.stopped == "diverged":
            what = "the run stops as diverged: after the crash its code does not come back to what is recorded"
            return what, end.reason
        more, less = _left_over(struck.effects, self.calm.effects), _left_over(self.calm.effects, struck.effects)
        if more:
            return _too_many(self._contracts, more[0], less, self.calm.effects, struck.effects)
        if end.unknown and self._rules.allow_unknown:
            return None
        if end.unknown:
            return f"{end.unknown} is left unknown, and a person is asked", _why(self._contracts, end.unknown_tool)
        if less:
            return f"{less[0].words} never happens: the run is {end.status}", end.reason or _OTHER_WAY
        if end.status != calm.status:
            return f"the run ends as {end.status} instead of {calm.status}", end.reason
        if end.result != calm.result and self._rules.compares_results and not reworded:
            what = f"the run returns {end.result!r} instead of {calm.result!r}"
            return what, "something that is not journaled decides, or was not yet: run.decide(), run.now(), run.uuid()"
        return None


def _crashes(kills: Sequence[int], boundaries: Sequence[str]) -> list[Crash]:
    """The places of the crashes; a second boundary is counted in the resumed run."""
    found, before = list[Crash](), 0
    for number in kills:
        where = boundaries[number - 1] if number <= len(boundaries) else "its end"
        found.append(Crash(number - before, where))
        before = number
    return found


def _left_over(effects: Sequence[Seen], others: Sequence[Seen]) -> list[Seen]:
    """Those of `effects` that have no counterpart among `others`."""
    unmatched, left = Counter(one.means for one in others), list[Seen]()
    for one in effects:
        unmatched[one.means] -= 1
        if unmatched[one.means] < 0:
            left.append(one)
    return left


def _too_many(
    contracts: Contracts, one: Seen, less: Sequence[Seen], expected: Sequence[Seen], effects: Sequence[Seen]
) -> tuple[str, str]:
    former = next((other for other in less if other.source == one.source), None)
    if former is not None and all(other.means != one.means for other in expected):
        what = f"{one.words} happens instead of {former.words}"
        return what, (
            "its arguments depend on something that is not journaled, or was not yet; if only the wording may differ,"
            " say what has to stay the same: explore(..., same=...)"
        )
    times = sum(other.means == one.means for other in effects)
    return f"{one.words} happens {times} times", _why(contracts, one.source)


def _rewording(contracts: Contracts, expected: Sequence[Seen], effects: Sequence[Seen]) -> str:
    """The first effect that is the same in other words."""
    words = {one.words for one in expected}
    for one in effects:
        former = next((other for other in expected if other.means == one.means), None)
        if former is not None and one.words not in words:
            tool = contracts.tools.get(one.source)
            clause = f"the {identity_of(tool)} of {one.source}" if tool and identity_of(tool) else "the caller"
            return f"{one.words} happens instead of {former.words}: the same, says {clause}"
    return ""


def _why(contracts: Contracts, name: str) -> str:
    """The clause that the contract lacks to survive a crash here."""
    tool = contracts.tools.get(name)
    if tool is None:
        return (
            "no tool's record covers it: made outside tools, or not deduped by the system that counts it;"
            " where a Natural() tool may repeat it, effects() has to list end states"
        )
    contract = tool.contract
    lacks = [
        *(["takes no key"] if contract.key is None else []),
        *(["declares no verify"] if not contract.verifies else []),
    ]
    if name in contracts.keyless:
        return f"`{name}` declares a key and never reads it: hand current_operation().key to the system behind it"
    if contract.key is not None:
        return f"`{name}` declares a key: does the system behind it dedupe on current_operation().key?"
    if contract.natural is not None:
        return f"`{name}` declares that repeating changes nothing, and it does"
    if contract.verifies:
        return f"`{name}` declares verify: does it find what happened, within its settle_window?"
    return f"`{name}` {' and '.join(lacks)}: a crash here leaves it unknown"


# --- the meaning of an effect: in other words it is neither a duplicate nor a loss -----------------------------------


AnyTool = Tool[Any, Any]


Same = Callable[[Effect], object]
"""The part of an effect that has to stay the same; effects that are equal in it are the same effect."""


class Seen(msgspec.Struct, frozen=True):
    """An effect in its compared form. `source` is the tool or fake, `words` its description, `means` its meaning."""

    source: str
    words: str
    means: str


def seen(effects: Sequence[Effect], tools: Mapping[str, AnyTool], same: Same | None) -> list[Seen]:
    """These effects, with the meaning of each: as the caller says, or as its tool's contract does."""
    return [Seen(one.tool, str(one), _meaning(one, tools.get(one.tool), same)) for one in effects]


def identity_of(tool: AnyTool) -> str:
    """The clause of the contract that says which calls are one effect; empty if all arguments count."""
    if tool.claims:
        return "claim"
    return "once" if tool.contract.once is not None else ""


def _meaning(effect: Effect, tool: AnyTool | None, same: Same | None) -> str:
    if same is not None:
        return repr(same(effect))
    if effect.line or tool is None or not identity_of(tool):
        return str(effect)
    if tool.claims:
        return f"{tool.name} {tool.business_key(effect.arguments)}"
    names = tool.contract.once.parameters if tool.contract.once is not None else ()
    return f"{tool.name} {[effect.arguments.get(name) for name in names]!r}"
