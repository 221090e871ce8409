"""People: who is told when a person is asked."""

from holdfast.interfaces.people.links import Link, LinkKeys, LinkRefused, make_link, read_link, use_link
from holdfast.interfaces.reaching.apprising import Apprise
from holdfast.interfaces.reaching.chats import Slack, Teams
from holdfast.interfaces.reaching.mail import Mail
from holdfast.interfaces.reaching.reach import Reach
from holdfast.model.notices import Only, Pace

__all__ = [
    "Apprise",
    "Link",
    "LinkKeys",
    "LinkRefused",
    "Mail",
    "Only",
    "Pace",
    "Reach",
    "Slack",
    "Teams",
    "make_link",
    "read_link",
    "use_link",
]
