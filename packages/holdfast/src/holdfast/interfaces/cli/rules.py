"""A rule of a policy in words, for whoever looks at a policy or at what it ruled."""

from __future__ import annotations

from typing import Final

from holdfast.interfaces.cli.words import duration
from holdfast.model.policy import Rule
from holdfast.policies import milliseconds

_EXPIRY: Final = {"refuse": "then it is refused", "hold": "then it goes on waiting"}


def then_text(rule: Rule) -> str:
    """What it says, where its condition holds."""
    share = f"{rule.then} {rule.rate:.0%}" if rule.then == "sample" else rule.then
    busy = f", {rule.busy_rate:.0%} while people are busy" if rule.busy_rate is not None else ""
    people = f" {rule.people} people" if rule.people > 1 else ""
    queue = f" in {rule.queue}" if rule.queue else ""
    within = "" if rule.within is None else f" within {duration(milliseconds(rule.within))}"
    after = f", then asks in {rule.escalates_to}" if rule.escalates_to else f", {_EXPIRY[rule.on_expiry]}"
    shadow = f"; {rule.shadow:.0%} of what leaves is looked at afterwards" if rule.shadow else ""
    ends = after if within or rule.on_expiry != "refuse" else ""
    return f"{share}{busy}{people}{queue}{within}{ends}{shadow}"
