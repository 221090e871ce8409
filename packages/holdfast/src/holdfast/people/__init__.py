"""Reviewers: which operations they see before these are sent, who is notified, and who may answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.agent.judging import PolicyError
    from holdfast.interfaces.accounts.roles import Grant, Principal, may
    from holdfast.interfaces.reaching.apprising import Apprise
    from holdfast.interfaces.reaching.chats import Slack, Teams
    from holdfast.interfaces.reaching.mail import Mail
    from holdfast.interfaces.reaching.reach import Reach
    from holdfast.interfaces.signing_keys import SigningKeys
    from holdfast.model.notices import Only, Pace
    from holdfast.model.policy import Policy, Rule
    from holdfast.people.links import Link, LinkRefused, make_link, read_link, use_link
    from holdfast.policies import Gate

__all__ = [
    "Apprise",
    "Gate",
    "Grant",
    "Link",
    "LinkRefused",
    "Mail",
    "Only",
    "Pace",
    "Policy",
    "PolicyError",
    "Principal",
    "Reach",
    "Rule",
    "SigningKeys",
    "Slack",
    "Teams",
    "make_link",
    "may",
    "read_link",
    "use_link",
]

# The module of each name. A name is imported on first use: listing the inbox imports modules of this package, and needs
# neither links nor policies.
_HOMES: Final = {
    name: home
    for home, names in {
        "holdfast.agent.judging": ("PolicyError",),
        "holdfast.interfaces.accounts.roles": ("Grant", "Principal", "may"),
        "holdfast.interfaces.reaching.apprising": ("Apprise",),
        "holdfast.interfaces.reaching.chats": ("Slack", "Teams"),
        "holdfast.interfaces.reaching.mail": ("Mail",),
        "holdfast.interfaces.reaching.reach": ("Reach",),
        "holdfast.interfaces.signing_keys": ("SigningKeys",),
        "holdfast.model.notices": ("Only", "Pace"),
        "holdfast.model.policy": ("Policy", "Rule"),
        "holdfast.people.links": ("Link", "LinkRefused", "make_link", "read_link", "use_link"),
        "holdfast.policies": ("Gate",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> object:
    """Import one of the public names on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The public names, and what every module has."""
    return sorted({*globals(), *__all__})
