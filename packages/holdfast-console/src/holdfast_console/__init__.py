"""The console of Holdfast: web inbox, HTTP API, accounts, notifications and reviewer figures.

It depends on the runtime; the runtime finds it by entry points and never imports it. Rooms, each of which may import
those before it: `reviews`, `links`, `notify`, `auth`, `web`, `cli`.
"""

from holdfast.inspect.signing_keys import SigningKeys
from holdfast_console.auth.authorize import Grant, Principal, may
from holdfast_console.links import Link, LinkRefused, make_link, read_link, use_link
from holdfast_console.notify.apprise import Apprise
from holdfast_console.notify.chats import Slack, Teams
from holdfast_console.notify.mail import Mail
from holdfast_console.notify.reach import Reach
from holdfast_console.notify.schedule import Only, Pace

__all__ = [
    "Apprise",
    "Grant",
    "Link",
    "LinkRefused",
    "Mail",
    "Only",
    "Pace",
    "Principal",
    "Reach",
    "SigningKeys",
    "Slack",
    "Teams",
    "make_link",
    "may",
    "read_link",
    "use_link",
]
