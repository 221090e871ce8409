"""People: which operations they see before these are sent, who is told of them, and who may answer."""

from holdfast.agent.judging import PolicyError
from holdfast.interfaces.accounts.roles import Grant, Principal, may
from holdfast.interfaces.people.links import Link, LinkRefused, make_link, read_link, use_link
from holdfast.interfaces.reaching.apprising import Apprise
from holdfast.interfaces.reaching.chats import Slack, Teams
from holdfast.interfaces.reaching.mail import Mail
from holdfast.interfaces.reaching.reach import Reach
from holdfast.interfaces.signing_keys import SigningKeys
from holdfast.model.notices import Only, Pace
from holdfast.model.policy import Policy, Rule
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
