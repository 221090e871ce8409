"""The schedules that operators declare, pause and resume while processes fire them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from beforehand.control.schedules import declare_schedules, steer_schedule
from beforehand.control.service import ControlService
from beforehand.queues.firing_times import Schedule
from simulator.plan import ScheduleOrder, Timetable
from simulator.processes.operators import set_out

if TYPE_CHECKING:
    from simulator.world import World


def schedules_now(world: World) -> dict[str, Schedule]:
    """The schedules that were declared last."""
    return [one.schedules for one in world.plan.timetables if one.at_ms <= world.now_ms()][-1]


def begin_schedules(world: World) -> None:
    """Start the operators."""
    for number, timetable in enumerate(world.plan.timetables[1:]):
        set_out(world, f"declares timetable {number}", functools.partial(_declare, timetable), timetable.at_ms)
    for order in world.plan.schedule_orders:
        what = f"says {order.word} to the schedule {order.schedule}"
        set_out(world, what, functools.partial(_steer, order), order.at_ms)


async def _declare(timetable: Timetable, service: ControlService) -> None:
    await declare_schedules(service.engine, timetable.schedules, {})


async def _steer(order: ScheduleOrder, service: ControlService) -> None:
    await steer_schedule(service.engine, order.schedule, order.word, by="ann")
