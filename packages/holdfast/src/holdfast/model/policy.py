"""Escalation policies: data that says which operations leave by themselves, and which a person sees first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, Literal

import msgspec

from holdfast.model.thresholds import Threshold
from holdfast.policies import Require

Word = Literal["auto", "sample", "ask", "two", "refuse"]
OnExpiry = Literal["refuse", "hold", "escalate"]
Banded = Literal["amount", "confidence"]

RATE: Final = 0.15
"""The share of a sampled stratum that people see, where its rule says nothing else."""
SURE: Final = (0.5, 0.7, 0.8, 0.9, 0.95)
"""The bands of confidence from which samples are drawn, where a policy says nothing else."""
DEFAULT: Final = "default"
"""The name under which a ruling stands that no rule made."""


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What happens to the operations for which the condition `when` (in CEL) is the first of its policy that holds.

    - `then`: `auto` lets it leave; `sample` lets it leave except for the share `rate`, which is asked about; `ask` and
      `two` ask that many people (`people` says how many, if not one or two); `refuse` never sends it.
    - `queue`: where the question is put. `within`: how long people have, and `on_expiry` what happens then: it is
      refused, or it goes on waiting (`hold`), or it goes on waiting in the queue `escalates_to`.
    - `busy_rate`: the share that is asked about instead of `rate` while the policy's `busy` holds.
    - `shadow`: the share of what left without a person that people look at afterwards.
    - `require`: how the people who approve it have to be known: `fresh_sign_in`, `person`.
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
        """How many people have to say yes where it asks."""
        return self.people or (2 if self.then == "two" else 1)


def _problems(rule: Rule) -> Iterator[str]:
    """What cannot be meant, each beginning with the field that says it."""
    if not rule.name or rule.name == DEFAULT:
        yield f"name: {rule.name!r} cannot name a rule"
    for field in ("rate", "shadow", "busy_rate"):
        share: float | None = getattr(rule, field)
        if share is not None and not 0 <= share <= 1:
            yield f"{field}: {share:g} is no share: it goes from 0 to 1"
    if rule.busy_rate is not None and (rule.then != "sample" or rule.busy_rate > rule.rate):
        yield "busy_rate: it is a share of what is sampled, and no more than rate"
    if rule.require is not None and rule.then in {"auto", "refuse"}:
        yield f"require: `{rule.then}` asks no person"
    if rule.people < 0 or (rule.then == "two" and rule.people == 1):
        yield f"people: {rule.people} is not how many people `{rule.then}` asks"
    if rule.within is not None and rule.within <= timedelta(0):
        yield f"within: {rule.within} is no time: people need some"
    if (rule.on_expiry == "escalate") != bool(rule.escalates_to):
        yield "escalates_to: it names the queue for on_expiry: escalate, and both belong together"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rules in their order, and what they are judged over.

    `default` is the word where no rule holds. `amounts` says for a tool (by its name) how much a call of it is worth,
    `subjects` whom it concerns, both in CEL over `arguments`; `history` is about one tool and one subject, over the
    last `remembers`. `bands` cuts a variable into strata for samples. `busy` is a condition over `queue`: people cannot
    keep up. `thresholds` are numbers that conditions name as `threshold.NAME`, and that may be moved.
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
            raise ValueError("thresholds: each stands under its own name")
        if not self.name:
            raise ValueError("name: a policy has one")
        if self.default == "sample":
            raise ValueError("default: what no rule knows is not sampled; give it a rule")
        if self.remembers <= timedelta(0):
            raise ValueError(f"remembers: {self.remembers} is no time")
        if any(list(cuts) != sorted(set(cuts)) for cuts in self.bands.values()):
            raise ValueError("bands: the cuts of a variable go up")
        names = [rule.name for rule in self.rules]
        if double := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"rules: two rules are named {double!r}")


def text_of(policy: Policy) -> bytes:
    """Everything that a policy says, as JSON: what its version is a digest of."""
    return msgspec.json.encode(policy, order="deterministic")


def version_of(policy: Policy) -> str:
    """The name of a policy with a digest of everything that it says: `refunds@1f0c9a2b`."""
    return f"{policy.name}@{hashlib.sha256(text_of(policy)).hexdigest()[:8]}"
