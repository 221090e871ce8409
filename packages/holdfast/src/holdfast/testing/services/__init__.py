"""Fake services for tests: in process, async, in virtual time. Each counts its own effects, for `world.use`."""

from holdfast.testing.services.calendar import Calendar, NumberTaken
from holdfast.testing.services.keyvalue import KeyValue
from holdfast.testing.services.mail import MailServer
from holdfast.testing.services.model import ScriptedModel
from holdfast.testing.services.payments import Payments
from holdfast.testing.services.tickets import Tickets

__all__ = ["Calendar", "KeyValue", "MailServer", "NumberTaken", "Payments", "ScriptedModel", "Tickets"]
