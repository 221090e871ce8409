"""Time zones by name, and the days and hours in them. Pure, except that the machine knows the zones."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from beforehand.installation import extra_command
from beforehand.model.alike import nearest
from beforehand.model.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class Period(msgspec.Struct, frozen=True):
    """One day or hour of a zone, and the moment at which the next one begins, in milliseconds since 1970."""

    name: str
    end_ms: int

    @property
    def words(self) -> str:
        """The date, or the hour with its offset from UTC."""
        date, _, hour = self.name.partition("T")
        return f"the hour {date} {hour[:2]}:00{hour[2:]}" if hour else date


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name. Raises `UsageError` where this machine does not know it."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - a tenth of the time that it takes to import an app

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError) as error:
        raise UsageError(
            f"this machine does not know the time zone {str(name)[:40]!r}",
            next_step=f"{extra_command('schedules')} brings all time zones",
        ) from error


def zone_fault(zone: str) -> str | None:
    """The reason why this is no time zone, in words; None if it is one."""
    try:
        zone_of(zone)
    except UsageError:
        from zoneinfo import available_timezones  # noqa: PLC0415 - as in `zone_of`

        known = available_timezones()
        if not known:
            return f"this system has no time zones; {extra_command('schedules')} brings them"
        near = nearest(str(zone), known)
        meant = f"did you mean {near}?" if near else "write one as Europe/Berlin or UTC"
        return f"time zone {str(zone)[:40]!r} does not exist; {meant}"
    return None


def day_of(zone: str, at_ms: int) -> Period:
    """The day of that zone in which a moment falls. On nights on which clocks change it has 23 or 25 hours.

    A midnight that does not exist, or exists twice, is the first moment whose date is the next one.
    """
    here = zone_of(zone)
    today = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(here).date()
    # With fold=0 a time that is skipped is read with the offset before: that is the moment at which clocks skip it.
    following = datetime.combine(today + timedelta(days=1), datetime.min.time(), here)
    return Period(today.isoformat(), round(following.timestamp() * 1000))


def hour_of(zone: str, at_ms: int) -> Period:
    """The hour of that zone's clock in which a moment falls, with the offset from UTC in its name.

    So an hour that exists twice is two periods, and one in which clocks change ends at the change.
    """
    here = zone_of(zone)
    local = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(here)
    end = at_ms // 1000 + 3600 - local.minute * 60 - local.second
    later = range(at_ms // 1000, end)
    change = bisect_left(later, True, key=lambda second: _offset(second, here) != local.utcoffset())
    return Period(local.isoformat(timespec="hours"), (later.start + change) * 1000)


def _offset(second: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
