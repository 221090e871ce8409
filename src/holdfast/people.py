"""People: who is told when a person is asked, and who may answer."""

from holdfast.interfaces.accounts.roles import Grant, Principal, may
from holdfast.interfaces.people.links import Link, LinkKeys, LinkRefused, make_link, read_link, use_link
from holdfast.interfaces.reaching.apprising import Apprise
from holdfast.interfaces.reaching.chats import Slack, Teams
from holdfast.interfaces.reaching.mail import Mail
from holdfast.interfaces.reaching.reach import Reach
from holdfast.model.notices import Only, Pace

__all__ = [
    "Apprise",
    "Grant",
    "Link",
    "LinkKeys",
    "LinkRefused",
    "Mail",
    "Only",
    "Pace",
    "Principal",
    "Reach",
    "Slack",
    "Teams",
    "make_link",
    "may",
    "read_link",
    "use_link",
]
