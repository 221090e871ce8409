"""Approval policies: data that says which operations are sent unattended, and which a person approves first.

The choice follows the data: facts in, a ruling out.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import msgspec

from beforehand.model.ids import parts_of, stream
from beforehand.model.thresholds import Threshold
from beforehand.policies import Gate, Require, milliseconds, strictest

Word = Literal["auto", "sample", "ask", "two", "refuse"]
OnExpiry = Literal["refuse", "hold", "escalate"]
Banded = Literal["amount", "confidence"]

RATE: Final = 0.15
"""The share of a sampled stratum that people review, unless its rule says otherwise."""
SURE: Final = (0.5, 0.7, 0.8, 0.9, 0.95)
"""The bands of confidence from which samples are drawn, unless a policy says otherwise."""
DEFAULT: Final = "default"
"""The name of a ruling that no rule made."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The treatment of operations for which the condition `when` (in CEL) is the first true one of the policy.

    - `then`: `auto` sends the operation. `sample` sends it, except for the share `rate`, for which a person is asked.
      `ask` and `two` ask one or two people, or the number `people`. `refuse` never sends it.
    - `queue`: the queue of the question. `within`: the time limit for an answer. `on_expiry`: what happens then. The
      operation is refused, continues to wait (`hold`), or continues to wait in the queue `escalates_to`.
    - `busy_rate`: the share that replaces `rate` while the policy's `busy` is true.
    - `shadow`: the share of calls sent without approval that people review afterwards.
    - `require`: how the approvers must have identified themselves: `fresh_sign_in`, `person`.
    """

    name: str
    when: str
    then: Word
    people: int = 0
    queue: str = ""
    within: timedelta | None = None
    on_expiry: OnExpiry = "refuse"
    escalates_to: str = ""
    rate: float = RATE
    busy_rate: float | None = None
    shadow: float = 0.0
    require: Require | None = None

    def __post_init__(self) -> None:
        if problem := next(_problems(self), ""):
            raise ValueError(problem)

    @property
    def asks_people(self) -> int:
        """The number of people who have to approve if the rule asks."""
        return self.people or (2 if self.then == "two" else 1)


def _problems(rule: Rule) -> Iterator[str]:
    """Faults of a rule, each beginning with the field at fault."""
    if not rule.name or rule.name == DEFAULT:
        yield f"name: {rule.name[:40]!r} cannot name a rule"
    for field in ("rate", "shadow", "busy_rate"):
        share: float | None = getattr(rule, field)
        if share is not None and not 0 <= share <= 1:
            yield f"{field}: {share:g} is not a share: it goes from 0 to 1"
    if rule.busy_rate is not None and (rule.then != "sample" or rule.busy_rate > rule.rate):
        yield "busy_rate: it is a share of what is sampled, and no more than rate"
    if rule.require is not None and rule.then in {"auto", "refuse"}:
        yield f"require: `{rule.then}` asks no person"
    if rule.people < 0 or (rule.then == "two" and rule.people == 1):
        yield f"people: {rule.people} is not how many people `{rule.then}` asks"
    if rule.within is not None and rule.within <= timedelta(0):
        yield f"within: {rule.within} is too short: people need some time"
    if (rule.on_expiry == "escalate") != bool(rule.escalates_to):
        yield "escalates_to: it names the queue for on_expiry: escalate, and both belong together"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An escalation policy: rules in their order, and the values that they judge.

    `default` is the decision if no rule applies. `amounts` gives, for each tool, the amount of a call, and `subjects`
    whom it concerns; both are expressions in CEL over `arguments`. `history` is that of one tool and one subject, over
    the period `remembers`. `bands` divides a variable into strata for samples. `busy` is a condition over `queue` that
    is true if reviewers cannot keep up. `thresholds` are adjustable numbers that conditions name as `threshold.NAME`.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    default: Word = "ask"
    amounts: Mapping[str, str] = {}
    subjects: Mapping[str, str] = {}
    remembers: timedelta = timedelta(days=30)
    bands: Mapping[Banded, tuple[float, ...]] = msgspec.field(default_factory=lambda: {"confidence": SURE})
    busy: str = ""
    thresholds: Mapping[str, Threshold] = {}

    def __post_init__(self) -> None:
        if any(name != one.name for name, one in self.thresholds.items()):
            raise ValueError("thresholds: the key and the name of a threshold must agree")
        if not self.name:
            raise ValueError("name: a policy needs one")
        if self.default == "sample":
            raise ValueError("default: it cannot sample; add a rule that samples")
        if self.remembers <= timedelta(0):
            raise ValueError(f"remembers: {self.remembers} is not a duration above 0")
        if any(list(cuts) != sorted(set(cuts)) for cuts in self.bands.values()):
            raise ValueError("bands: the cuts of a variable must ascend")
        names = [rule.name for rule in self.rules]
        if double := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"rules: two rules are named {double!r}")


def text_of(policy: Policy) -> bytes:
    """Everything that a policy says, as JSON: what its version is a digest of."""
    return msgspec.json.encode(policy, order="deterministic")


def version_of(policy: Policy) -> str:
    """The name of a policy with a digest of everything that it says: `refunds@1f0c9a2b`."""
    return f"{policy.name}@{hashlib.sha256(text_of(policy)).hexdigest()[:8]}"


# --- the ruling of a policy on one operation ------------------------------------------------------------------------
# The first rule that holds decides. The caller evaluates conditions (`Test`) and supplies the number that a sample is
# drawn with (`chance`, from the operation's name): the choice is pure, total, and the same each time. A gate of the
# tool itself is not known here: it asks whatever a policy says (`decide`).


Test: TypeAlias = Callable[[str, Mapping[str, Any]], bool]
"""Evaluates a condition for these values. Raises `ValueError` where it has no answer."""
Draw: TypeAlias = Callable[[str], float]
"""A number from 0 to 1 for a text, the same for the same text and operation."""
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history of one tool and one subject: the calls sent, their total amount, and the decisions of people."""

    sent: int = 0
    amount: float = 0.0
    approved: int = 0
    declined: int = 0


class Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The review backlog: the number of waiting items, and the age of the oldest one in hours."""

    depth: int = 0
    oldest_hours: float = 0.0


class PolicyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts that a policy judges besides the arguments. A rule that uses an unknown fact (None) cannot be judged.

    `hour` and `weekday` (`mon` to `sun`) are in UTC. `origin` is `model` if a model chose the call. `subject` is whom
    the call concerns, as the policy defines it.
    """

    tool: str
    agent: str
    hour: int
    weekday: str
    effect: str = "write"
    amount: float | None = None
    confidence: float | None = None
    reversible: bool = False
    taint: str = ""
    origin: str = "code"
    subject: str = ""
    history: Past | None = None
    queue: Queue | None = None

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """As conditions know it."""
        return {**{name: _plain(getattr(self, name)) for name in self.__struct_fields__}, "arguments": arguments}


VARIABLES: Final = (*PolicyFacts.__struct_fields__, "arguments")
MEMBERS: Final[dict[str, tuple[str, ...]]] = {"history": Past.__struct_fields__, "queue": Queue.__struct_fields__}


def _plain(value: object) -> object:
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value


# --- the choice ---------------------------------------------------------------------------------------------------


class Ruling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decision of a policy on one operation, and the rule behind it. Times are milliseconds.

    With `sampled`, the operation was drawn as a sample, so a person is asked. With `shadow`, it is sent, and a person
    reviews it afterwards. `stratum` is the stratum from which it was drawn. `why` is the reason if the policy could not
    judge it.
    """

    word: Word
    rule: str
    people: int = 1
    queue: str = ""
    within_ms: int = 0
    on_expiry: OnExpiry = "refuse"
    escalates_to: str = ""
    sampled: bool = False
    shadow: bool = False
    stratum: str = ""
    why: str = ""
    require: Require | None = None

    @property
    def asks(self) -> bool:
        """True if a person is asked before it is sent."""
        return asks(self.word, sampled=self.sampled)

    @property
    def may_be_allowed(self) -> bool:
        """True if a permission is enough: not for a sample, which people want to see."""
        return self.word == "ask" and not self.why


def asks(word: Word, *, sampled: bool) -> bool:
    """True if this decision means that a person is asked first."""
    return word in {"ask", "two"} or (word == "sample" and sampled)


def choose(policy: Policy, values: Mapping[str, Any], test: Test, draw: Draw) -> Ruling:
    """The ruling of the first rule that holds, or that cannot be judged: then people are asked.

    Where no rule holds, the policy's own decision has the rule name `default`.
    """
    for rule in policy.rules:
        try:
            holds = test(rule.when, values)
        except ValueError as error:
            return _asked(rule, str(error))
        if holds:
            return _ruling(policy, rule, values, test, draw)
    word = policy.default
    return Ruling(word, DEFAULT, people=2 if word == "two" else 1)


def _asked(rule: Rule, why: str) -> Ruling:
    return msgspec.structs.replace(_terms_of(rule), word="two" if rule.then == "two" else "ask", why=why)


def _terms_of(rule: Rule) -> Ruling:
    within = 0 if rule.within is None else milliseconds(rule.within)
    expiry, to = rule.on_expiry, rule.escalates_to
    return Ruling(rule.then, rule.name, rule.asks_people, rule.queue, within, expiry, to, require=rule.require)


def _ruling(policy: Policy, rule: Rule, values: Mapping[str, Any], test: Test, draw: Draw) -> Ruling:
    ruling, stratum = _terms_of(rule), stratum_of(policy, rule, values)
    sampled = rule.then == "sample" and draw(f"sample {stratum}") < _rate(policy, rule, values, test)
    leaves = rule.then == "auto" or (rule.then == "sample" and not sampled)
    shadow = leaves and draw(f"shadow {stratum}") < rule.shadow
    return msgspec.structs.replace(ruling, sampled=sampled, shadow=shadow, stratum=stratum)


def _rate(policy: Policy, rule: Rule, values: Mapping[str, Any], test: Test) -> float:
    """The share that is drawn. Whether people are busy is asked only where that changes something."""
    if rule.busy_rate is None or not policy.busy:
        return rule.rate
    try:
        return rule.busy_rate if test(policy.busy, values) else rule.rate
    except ValueError:
        return rule.rate


def stratum_of(policy: Policy, rule: Rule, values: Mapping[str, Any]) -> str:
    """The rule, and the band in which each variable of `bands` lies: `borderline confidence:0.8-0.9`."""
    bands = [f"{name}:{_band(values.get(name), cuts)}" for name, cuts in sorted(policy.bands.items()) if cuts]
    return " ".join([rule.name, *bands])


def _band(value: object, cuts: tuple[float, ...]) -> str:
    """Between which cuts a number lies; a cut belongs to the band above it."""
    if not isinstance(value, (int, float)):
        return "unknown"
    place = bisect_right(cuts, value)
    low, high = cuts[place - 1 : place], cuts[place : place + 1]
    return f"{low[0]:g}-{high[0]:g}" if low and high else f"{cuts[-1]:g}+" if low else f"-{cuts[0]:g}"


def chance(secret: bytes, operation: str, what: str) -> float:
    """A number from 0 to 1 that cannot be guessed without the journal's `secret`; the same on every call.

    Operations are drawn independently of each other: in each stratum the share that is drawn tends to its rate.
    """
    drawn = hmac.digest(secret, f"{operation}\0{what}".encode(), "sha256")
    return int.from_bytes(drawn[:7], "big") / 2**56


def asked_before(ruling: Ruling) -> Ruling:
    """The ruling of a changed policy about what a person was asked about already: the question is never withdrawn."""
    if ruling.asks or ruling.word == "refuse":
        return ruling
    return msgspec.structs.replace(
        ruling, word="ask", sampled=False, shadow=False, why="a person was asked about it under another policy"
    )


# --- the terms for people -----------------------------------------------------------------------------------------


class Terms(msgspec.Struct, frozen=True):
    """The terms on which people are asked: how many, how they have to be known, how long they have, and so on."""

    people: int = 1
    within_ms: int = 0
    queue: str = ""
    on_expiry: OnExpiry = "refuse"
    require: Require | None = None


def terms(gate: Gate | None, ruling: Ruling | None, otherwise_ms: int = 0, *, escalated: bool = False) -> Terms:
    """The stricter of what a tool's own gate and a policy say; a gate that gave people a time refuses after it.

    Where neither gives a time, people have `otherwise_ms` (0: for ever). Once it is `escalated` the question waits in
    its other queue, beyond its time as well.
    """
    spans = [milliseconds(gate.within)] if gate is not None and gate.within is not None else []
    people = [gate.people] if gate is not None else []
    required = strictest(gate.require if gate is not None else None, ruling.require if ruling is not None else None)
    if ruling is None or not ruling.asks:
        return Terms(max(people, default=1), min(spans, default=otherwise_ms), require=required)
    if escalated:
        return Terms(max([ruling.people, *people]), otherwise_ms, ruling.escalates_to, "hold", required)
    on_expiry: OnExpiry = "refuse" if spans else ruling.on_expiry
    if ruling.within_ms:
        spans.append(ruling.within_ms)
    return Terms(max([ruling.people, *people]), min(spans, default=otherwise_ms), ruling.queue, on_expiry, required)


POLICIES: Final = "policies/"


def policy_stream(version: str) -> str:
    """The ledger stream that holds the text of this version."""
    return stream("policies", version)


def version_of_stream(name: str) -> str:
    """The version whose text is in this stream."""
    return parts_of(name)[1]
