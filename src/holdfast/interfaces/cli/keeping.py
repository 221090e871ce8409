"""Commands about the journal itself: `verify` and `doctor`."""

from __future__ import annotations

import click

from holdfast.errors import UsageError
from holdfast.interfaces.checking import check
from holdfast.interfaces.cli.common import Call, command
from holdfast.interfaces.cli.place import existing_journal
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.status import DIVERGED, DONE
from holdfast.interfaces.cli.words import count
from holdfast.interfaces.keeping import Facts, Rebuilt, facts, rebuild, trust


@command("verify", examples=("holdfast verify", "holdfast verify --journal backup.db --json"))
async def verify(call: Call) -> int:
    """Check the hash chains of all runs and of the ledger.

    A record that was changed, removed or moved after it was written is named, and
    so is an end that only the anchor beside the journal remembers; the exit status
    is 4.
    """
    async with call.looking(tells_doubts=False) as looking:
        found = await check(looking, existing_journal(call.journal))
        doubt = looking.identity.reason
    status = DIVERGED if found.broken else DONE
    if call.screen.as_json:
        call.screen.document(found)
        return status
    read = f"{count(found.runs, 'run')}, {count(found.records, 'record')}, {count(found.streams, 'ledger stream')}"
    if not found.broken:
        call.screen.line(("All chains hold", "bold green"), f": {read}.")
        if doubt:  # a copy, say: nothing is missing, and yet nobody knows whether it is the newest
            call.screen.note(f"But {doubt}. Next: holdfast doctor")
        return status
    call.screen.line((f"{count(len(found.broken), 'chain')} broken", "bold red"), f", of {read}:")
    for broken in found.broken:
        call.screen.line(f"  {broken.chain}, record {broken.record}: {broken.why}")
    call.screen.note("Next: keep a copy of the file as it is, and compare it with a backup.")
    return status


@command(
    "doctor",
    examples=("holdfast doctor", "holdfast doctor --rebuild", "holdfast doctor --trust anna"),
)
@click.option("--rebuild", "rebuilding", is_flag=True, help="Recompute the listing of runs from their records.")
@click.option(
    "--trust", "by", metavar="NAME", help="Your word, under this name, on a journal that looks copied or restored."
)
@click.option("--newest", is_flag=True, help="With --trust: this file is the newest there is; nothing was lost.")
async def doctor(call: Call, rebuilding: bool, by: str | None, newest: bool) -> None:
    """Examine the journal: where it is, how it is stored, whether it can be trusted.

    A journal that was copied, rolled back or restored sends nothing until --trust.
    Afterwards what may have been sent before the restore is treated as doubtful;
    with --newest it is trusted as it is.
    """
    if newest and by is None:
        raise UsageError("--newest goes with --trust NAME")
    done: dict[str, object] = {}
    if rebuilding or by is not None:
        async with call.serving() as service:
            if by is not None:
                done["trust"] = await trust(service.engine, by, newest=newest)
            if rebuilding:
                done["rebuilt"] = await rebuild(service.engine)
    async with call.looking(tells_doubts=False) as looking:
        found = await facts(looking, existing_journal(call.journal))
    if call.screen.as_json:
        call.screen.document({"journal": found, **done})
        return
    _show(call.screen, found)
    _show_done(call.screen, done)


def _show(screen: Screen, found: Facts) -> None:
    runs = ", ".join(f"{number} {status}" for status, number in found.runs.items()) or "none"
    good = found.trust == "trusted"
    rows = [
        ("journal", f"{found.path} ({found.bytes // 1024} KiB)"),
        ("stored", f"SQLite {found.sqlite}, {found.mode} mode"),
        ("namespace", found.namespace),
        ("incarnation", found.incarnation),
        ("trust", found.trust + (f": {found.reason}" if found.reason else "")),
        ("runs", runs),
        (
            "open",
            ", ".join(found.open_operations[:10]) + (" ..." if len(found.open_operations) > 10 else "")
            or "no operation",
        ),
        ("undriven", ", ".join(found.abandoned[:10]) or "no run waits for a worker"),
        ("paused", ", ".join(f"{tool} ({why})" for tool, why in found.paused_tools.items()) or "no tool"),
        ("ledger", count(found.ledger_entries, "entry", "entries")),
        ("unreadable", "; ".join(found.unreadable) or "no run"),
        ("refused", "; ".join(found.refused_entries) or "no ledger entry"),
    ]
    screen.show(
        grid(
            [
                (phrase((name, "dim")), phrase((text, "bold red" if name == "trust" and not good else "")))
                for name, text in rows
            ]
        )
    )
    for notice in found.notices:
        screen.line(("Note: ", "dim"), notice)
    if found.trust == "distrustful":
        screen.line("Nothing is sent. Find out which file is the newest; then: holdfast doctor --trust NAME [--newest]")


def _show_done(screen: Screen, done: dict[str, object]) -> None:
    if "trust" in done:
        screen.line(f"The journal is {done['trust']} now.")
    rebuilt = done.get("rebuilt")
    if isinstance(rebuilt, Rebuilt):
        screen.line(f"Rebuilt the listing of {count(rebuilt.runs, 'run')}: {len(rebuilt.changed)} changed.")
        if rebuilt.busy:
            screen.line(f"Left alone, as a process drives them: {', '.join(rebuilt.busy)}")
