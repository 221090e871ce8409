"""The console of Beforehand: web inbox, HTTP API, accounts, notifications and reviewer figures.

It depends on the runtime; the runtime finds it by entry points and never imports it. Rooms, each of which may import
those before it: `reviews`, `links`, `notify`, `auth`, `web`, `cli`.
"""

from beforehand.inspect.signing_keys import SigningKeys
from beforehand_console.auth.authorize import Grant, Principal, may
from beforehand_console.links import Link, LinkRefused, make_link, read_link, use_link
from beforehand_console.notify.apprise import Apprise
from beforehand_console.notify.chats import Slack, Teams
from beforehand_console.notify.mail import Mail
from beforehand_console.notify.reach import Reach
from beforehand_console.notify.schedule import Only, Pace

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
