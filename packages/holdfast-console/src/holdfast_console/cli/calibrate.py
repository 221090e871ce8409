"""`holdfast policy calibrate`: where thresholds should stand by what people found, proposed or applied."""

from __future__ import annotations

from holdfast.cli.common import CommandCall
from holdfast.cli.exit_status import DONE
from holdfast.cli.screen import Screen
from holdfast.engine.environment import SystemClock
from holdfast.model.policy import Policy
from holdfast.model.thresholds import Move
from holdfast_console.reviews.calibration import Proposal, apply, proposals


async def calibrate(call: CommandCall, policy: Policy, by: str) -> int:
    """Propose the moves, or make them in the name of `by`."""
    now_ms = SystemClock().wall_ms()
    moved: list[Move] = []
    if by:
        async with call.serving() as service:
            found = await proposals(service.looking, policy, now_ms)
            moved = await apply(service.engine.journal, found, by)
    else:
        async with call.looking() as looking:
            found = await proposals(looking, policy, now_ms)
    if call.screen.as_json:
        call.screen.document({"proposals": found, "moved": moved})
        return DONE
    for one in found:
        _show(call.screen, one)
    if not found:
        call.screen.line("This policy declares no thresholds.")
    elif by:
        names = ", ".join(one.name for one in moved) or "nothing"
        call.screen.line(f"Moved: {names}. Apps that open from now on judge by it.")
    elif any(one.judgement.moves for one in found):
        call.screen.next("holdfast policy calibrate --apply")
    return DONE


def _show(screen: Screen, one: Proposal) -> None:
    found = one.judgement
    word = f"from {found.at:g} to {found.to:g}" if found.moves else f"stays at {found.at:g}"
    screen.line((one.name, "bold"), f"  {word}: {found.why}")
    screen.line(
        (f"  went by itself and was wrong: {found.beyond}; was asked about and was wrong: {found.before}", "dim")
    )
