"""The rules: pure functions from what was counted, or from what is true now, to findings with their evidence.

A rule over tallies compares the recent hours of one agent with the agent's own past, so it judges the past as it judges
the present. A rule over the present reads what only the listing, the queues and the schedules know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations, pairwise
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from beforehand.inspect.monitors.observations import RESTS, STEPS
from beforehand.inspect.monitors.tallies import DAY_MS, HOUR_MS, AgentTallies, Sighting, Topics, number_of, sighted
from beforehand.inspect.text import count, duration, moment
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.model.shell import to_type

Rule: TypeAlias = Literal[
    "no progress", "unknown outcomes", "refusals", "repetition", "missing effect", "cost", "duration",
    "verifier says yes", "unsupported claim", "versions", "schedule", "queue", "no worker",
]  # fmt: skip
RULES: Final[tuple[Rule, ...]] = get_args(Rule)
_SHOWN: Final = 5


class MonitorSettings(msgspec.Struct, frozen=True):
    """Bounds of the rules. Times are in milliseconds.

    `silent_ms`: how long a driven run may record nothing. The last `recent_ms` are compared with the `past_ms` before.
    Writes: an agent is judged by `past` writes at least, and `least` of the recent ones have to have ended so, twice as
    large a part as before, with a probability below `chance` that it is chance. Runs: an agent is judged by `runs` runs
    at least; a run is far above if it reached `far` times (a power of 2) of what no more than the part `outliers` of
    the runs before reached. `yes`: the number of verdicts, all of them yes, from which a verifier is found.
    `versions_ms`: how long runs of an agent may begin under two versions. `late_ms`: how long a schedule, and a run
    that is due, may wait; `queue_ms`: how long a run may wait in a queue once it is ready. The rules in `off` are not
    applied. `agents` have bounds of their own, except `recent_ms` and `past_ms`.
    """

    silent_ms: int = 30 * 60_000
    recent_ms: int = DAY_MS
    past_ms: int = 30 * DAY_MS
    past: int = 20
    least: int = 3
    chance: float = 1e-4
    runs: int = 30
    far: int = 4
    outliers: float = 0.005
    yes: int = 30
    versions_ms: int = 2 * HOUR_MS
    late_ms: int = 15 * 60_000
    queue_ms: int = HOUR_MS
    off: tuple[Rule, ...] = ()
    agents: Mapping[str, MonitorSettings] = {}

    def of(self, agent: str) -> MonitorSettings:
        """The bounds by which an agent is judged."""
        return self.agents.get(agent, self)

    def first_ms(self, now_ms: int) -> int:
        """The wall clock at which the past begins: the start of a day."""
        return (now_ms - self.recent_ms - self.past_ms) // DAY_MS * DAY_MS

    def wanted(self, found: Iterable[SilentFailure]) -> list[SilentFailure]:
        """The findings of the rules that are applied."""
        return [one for one in found if one.rule not in self.of(one.agent).off]


class SilentFailure(msgspec.Struct, frozen=True):
    """A finding of a rule at one moment: what is unusual, the evidence in sentences, and the command to type.

    `id` names what the finding is about, and stays the same while that goes on. `newest_ms` is the wall clock of the
    newest evidence: an acknowledgement covers the evidence up to then.
    """

    rule: Rule
    agent: str
    at_ms: int
    what: str
    evidence: list[str]
    command: str
    id: str = ""
    newest_ms: int = 0


class Silence(msgspec.Struct, frozen=True):
    """A time in which a process drove a run and nothing was recorded. `last` is the kind of the last record."""

    agent: str
    run: str
    since_ms: int
    until_ms: int
    last: str


class Comparison(msgspec.Struct, frozen=True):
    """The recent hours of an agent beside its past, at one moment: a rule over tallies judges it."""

    agent: str
    recent: Topics
    past: Topics
    now_ms: int
    settings: MonitorSettings

    def found(
        self, rule: Rule, subject: str, what: str, evidence: Sequence[tuple[Sighting, str]], command: str
    ) -> SilentFailure:
        """A finding about a subject. `evidence` are sightings, each with what was seen; the newest come first."""
        shown = sorted(evidence, reverse=True)[:_SHOWN]
        sentences = [f"{one.subject} {text} at {moment(one.at_ms)}" for one, text in shown]
        newest = shown[0][0].at_ms if shown else self.now_ms
        name = finding_id(rule, self.agent, subject)
        return SilentFailure(rule, self.agent, self.now_ms, what, sentences, command, name, newest)


def finding_id(rule: Rule, agent: str, subject: str) -> str:
    """The name of a finding: eight hexadecimal digits."""
    return sha256(msgspec.json.encode((rule, agent, subject))).hexdigest()[:8]


def judged(agents: Mapping[str, AgentTallies], now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The findings of the rules over tallies at that moment, in whole hours. Later observations are ignored."""
    now, border = now_ms // HOUR_MS, (now_ms - settings.recent_ms) // HOUR_MS
    first = settings.first_ms(now_ms) // HOUR_MS
    found: list[SilentFailure] = []
    for agent, tallies in sorted(agents.items()):
        recent = sighted(tallies.between(border + 1, now))
        if recent:
            case = Comparison(agent, recent, tallies.between(first, border), now_ms, settings.of(agent))
            found += [one for rule in OVER_TALLIES for one in rule(case)]
    return settings.wanted(found)


# --- rules over tallies ----------------------------------------------------------------------------------------------


def bad_writes(case: Comparison) -> Iterator[SilentFailure]:
    """More unknown or refused writes than the agent's past makes likely."""
    rules: dict[str, tuple[Rule, str]] = {
        "unknown": ("unknown outcomes", "ended unknown"),
        "failed": ("refusals", "failed"),
    }
    now, before = number_of(case.recent, "writes"), number_of(case.past, "writes")
    for status, (rule, ended) in rules.items():
        bad, earlier = number_of(case.recent, "writes", status), number_of(case.past, "writes", status)
        if _is_far_above((bad, now), (earlier, before), case.settings):
            what = (
                f"{bad:,} of {now:,} writes {ended} in the last {duration(case.settings.recent_ms)};"
                f" before: {earlier:,} of {before:,}"
            )
            newest = case.recent["writes"][status].newest
            evidence = [(one, ended) for one in newest]
            yield case.found(rule, status, what, evidence, to_type("why", newest[0].subject))


def _is_far_above(recent: tuple[int, int], past: tuple[int, int], settings: MonitorSettings) -> bool:
    (bad, now), (earlier, before) = recent, past
    if bad < settings.least or before < settings.past or bad * before < 2 * earlier * now:
        return False
    return tail(bad, now, (earlier + 1) / (before + 2)) < settings.chance


def tail(least: int, number: int, share: float) -> float:
    """The probability of `least` or more among `number`, where each is so with the probability `share`, from 0 to 1."""
    if least <= 0:
        return 1.0
    if not 0 < share < 1:
        return float(share >= 1 and number >= least)
    log_share, log_rest = math.log(share), math.log1p(-share)
    whole = math.lgamma(number + 1)
    terms = (
        whole - math.lgamma(one + 1) - math.lgamma(number - one + 1) + one * log_share + (number - one) * log_rest
        for one in range(least, number + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


_SIZES: Final[dict[str, tuple[Rule, Callable[[int], str]]]] = {
    "repeats": ("repetition", lambda size: f"made the same call {size:,} times"),
    "tokens": ("cost", lambda size: f"used {size:,} tokens of models"),
    "driven": ("duration", lambda size: f"was driven for {duration(size)}"),
}


def sizes_far_above(case: Comparison) -> Iterator[SilentFailure]:
    """Runs that repeat themselves, cost or last far more than the agent's runs before."""
    before = number_of(case.past, "runs")
    if before < case.settings.runs:
        return
    for topic, (rule, says) in _SIZES.items():
        usual = {int(size): tally.number for size, tally in case.past.get(topic, {}).items()}
        far = [
            (int(size), tally)
            for size, tally in case.recent.get(topic, {}).items()
            if usual.get(int(size) // case.settings.far, 0) <= case.settings.outliers * before
            and int(size) >= STEPS[topic] * case.settings.far  # below the least step, nothing was observed
        ]
        runs: dict[str, tuple[Sighting, int]] = {}
        for size, tally in sorted(far, key=lambda one: one[0]):
            runs |= {one.subject: (one, size) for one in tally.newest}  # the largest size that each run reached
        if runs:
            newest, size = max(runs.values())
            much = usual.get(size // case.settings.far, 0)
            what = (
                f"{count(len(runs), 'run')} far above the agent's past: {newest.subject} {says(size)} or more; of"
                f" {before:,} runs before, {much:,} reached a part of {case.settings.far} of that"
            )
            evidence = [(one, f"{says(reached)} or more") for one, reached in runs.values()]
            yield case.found(rule, "", what, evidence, to_type("show", newest.subject))


def missing_effects(case: Comparison) -> Iterator[SilentFailure]:
    """Completed runs without an effect that every run of the agent had before."""
    before = number_of(case.past, "effects")
    if before < case.settings.runs:
        return
    sets = [set(value.split(", ")) - {""} for value in case.past["effects"]]
    for tool in sorted(one for one in sets[0] if all(one in others for others in sets)):
        lacking = [tally for value, tally in case.recent.get("effects", {}).items() if tool not in value.split(", ")]
        if lacking:
            number = sum(tally.number for tally in lacking)
            newest = [one for tally in lacking for one in tally.newest]
            what = f"{count(number, 'run')} completed without {tool}; all {before:,} runs before had it"
            evidence = [(one, f"completed without {tool}") for one in newest]
            yield case.found("missing effect", tool, what, evidence, to_type("show", max(newest).subject))


def only_yes(case: Comparison) -> Iterator[SilentFailure]:
    """Verifiers that have found every effect that they were ever asked about."""
    for topic, verdicts in case.recent.items():
        if not topic.startswith("verdicts of "):
            continue
        all_yes = number_of(case.recent, topic) + number_of(case.past, topic)
        yes = number_of(case.recent, topic, "happened") + number_of(case.past, topic, "happened")
        if yes == all_yes >= case.settings.yes:
            tool = topic.removeprefix("verdicts of ")
            newest = verdicts["happened"].newest
            what = f"the verifier of {tool} found the effect {yes:,} of {yes:,} times"
            evidence = [(one, "was found") for one in newest]
            yield case.found("verifier says yes", tool, what, evidence, to_type("why", newest[0].subject))


def unsupported_claims(case: Comparison) -> Iterator[SilentFailure]:
    """Results with a receipt of an effect that the run did not have."""
    claims = case.recent.get("claims", {})
    if claims:
        newest = [
            (one, f"claims {operation}, which it did not do,")
            for operation, tally in claims.items()
            for one in tally.newest
        ]
        runs = len({one.subject for one, _ in newest})
        what = f"{count(runs, 'run')} completed with a receipt that the records do not support"
        yield case.found("unsupported claim", "", what, newest, to_type("show", max(newest)[0].subject))


def two_versions(case: Comparison) -> Iterator[SilentFailure]:
    """Runs that begin under two versions of the agent for too long."""
    begun = case.recent.get("versions", {})
    for one, other in combinations(sorted(begun), 2):
        last = min(begun[one].newest[0].at_ms, begun[other].newest[0].at_ms)
        both = last - max(begun[one].first_ms, begun[other].first_ms)
        if both > case.settings.versions_ms:
            names = [version or "none" for version in (one, other)]
            what = f"runs begin under the versions {names[0]} and {names[1]} for {duration(both)}"
            evidence = [(begun[version].newest[0], f"began under {version or 'none'}") for version in (one, other)]
            yield case.found("versions", f"{one} {other}", what, evidence, to_type("ps", "--agent", case.agent))


OVER_TALLIES: Final[tuple[Callable[[Comparison], Iterator[SilentFailure]], ...]] = (
    bad_writes, sizes_far_above, missing_effects, only_yes, unsupported_claims, two_versions,
)  # fmt: skip


# --- rules over the present ------------------------------------------------------------------------------------------


class MissedFiring(msgspec.Struct, frozen=True):
    """A schedule that is not paused, its agent, and its last moment up to now that has not fired."""

    schedule: str
    agent: str
    moment_ms: int


class WrongClock(msgspec.Struct, frozen=True):
    """A schedule that is not paused, its agent, and the trace that a wrong clock has left on it."""

    schedule: str
    agent: str
    trace: str


class WaitingQueue(msgspec.Struct, frozen=True):
    """A queue that is not paused: how many runs wait in it, and since when the oldest has been ready."""

    queue: str
    waiting: int
    oldest_ms: int


class DueRun(msgspec.Struct, frozen=True):
    """A run of no queue that no living process drives, and since when it has been due."""

    agent: str
    run: str
    since_ms: int


def silences_in(row: RunRow, records: Sequence[r.Record], least_ms: int) -> Iterator[Silence]:
    """The times of at least `least_ms` in which a run was driven and recorded nothing, up to its last record.

    A time that ends with a takeover does not count: the process before may have died at its beginning.
    """
    timed = [one for one in records if one.at]
    for before, after in pairwise(timed):
        if after.at - before.at >= least_ms and not isinstance(before, RESTS) and not isinstance(after, r.Claimed):
            yield Silence(row.agent, row.run, before.at, after.at, type(before).__name__.removesuffix("Record"))


def without_progress(silences: Iterable[Silence], settings: MonitorSettings) -> list[SilentFailure]:
    """The runs that were driven for `silent_ms` or longer and recorded nothing."""
    return [
        SilentFailure(
            "no progress", one.agent, one.since_ms + settings.of(one.agent).silent_ms,
            f"run {one.run} recorded nothing for {duration(one.until_ms - one.since_ms)} while a process drove it",
            [f"its last record before, {one.last}, is of {moment(one.since_ms)}"],
            to_type("show", one.run), finding_id("no progress", one.agent, one.run), one.since_ms,
        )
        for one in silences
        if one.until_ms - one.since_ms >= settings.of(one.agent).silent_ms
    ]  # fmt: skip


def late_schedules(missed: Iterable[MissedFiring], now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The schedules that did not fire `late_ms` after their moment."""
    return [
        SilentFailure(
            "schedule", one.agent, now_ms, f"the schedule {one.schedule} did not fire at {moment(one.moment_ms)}",
            [f"it is {duration(now_ms - one.moment_ms)} late"], "beforehand schedules",
            finding_id("schedule", one.agent, one.schedule), one.moment_ms,
        )
        for one in missed
        if now_ms - one.moment_ms > settings.of(one.agent).late_ms
    ]  # fmt: skip


def wrong_clocks(found: Iterable[WrongClock], now_ms: int) -> list[SilentFailure]:
    """The schedules that have fired for a moment to come, or begin at one."""
    return [
        SilentFailure(
            "schedule", one.agent, now_ms, f"the schedule {one.schedule} met a wrong clock", [one.trace],
            "beforehand schedules", finding_id("schedule", one.agent, f"{one.schedule}: {one.trace}"),
        )
        for one in found
    ]  # fmt: skip


def aged_queues(queues: Iterable[WaitingQueue], now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The queues whose oldest run has been ready for longer than `queue_ms`."""
    return [
        SilentFailure(
            "queue", f"queue {one.queue}", now_ms,
            f"the oldest run of the queue {one.queue} has waited for {duration(now_ms - one.oldest_ms)}",
            [f"{count(one.waiting, 'run')} of it have not begun"], "beforehand queues",
            finding_id("queue", one.queue, ""), one.oldest_ms,
        )
        for one in queues
        if now_ms - one.oldest_ms > settings.queue_ms
    ]  # fmt: skip


def undriven(due: Iterable[DueRun], now_ms: int, settings: MonitorSettings) -> list[SilentFailure]:
    """The agents with runs that have been due for longer than `late_ms` and that no process drives."""
    late: dict[str, list[DueRun]] = {}
    for one in due:
        if now_ms - one.since_ms > settings.of(one.agent).late_ms:
            late.setdefault(one.agent, []).append(one)
    found: list[SilentFailure] = []
    for agent, runs in sorted(late.items()):
        runs.sort(key=lambda one: (one.since_ms, one.run))
        evidence = [f"{one.run} has been due since {moment(one.since_ms)}" for one in runs[:_SHOWN]]
        what = f"no process drives {count(len(runs), 'run')} that is due" if len(runs) == 1 else (
            f"no process drives {count(len(runs), 'run')} that are due"
        )  # fmt: skip
        name = finding_id("no worker", agent, "")
        found.append(
            SilentFailure("no worker", agent, now_ms, what, evidence, "beforehand ps", name, runs[-1].since_ms)
        )
    return found
