"""Commands about the journal itself: `verify`, `heads` and `doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from beforehand.cli.common import CommandCall, command
from beforehand.cli.exit_status import DIVERGED, DONE
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.cli.undriven import UndrivenFinder, commands_for
from beforehand.engine.breaker import ALL
from beforehand.engine.environment import SystemClock, SystemRng
from beforehand.errors import UsageError
from beforehand.inspect.doctor import JournalFacts, Rebuilt, facts, rebuild, trust
from beforehand.inspect.signed_heads import KEYS, VARIABLE, head_keys, own_head_keys, read_heads, signed_head
from beforehand.inspect.text import count, safe
from beforehand.inspect.verify import Kept, check
from beforehand.model.heads import line_of


@command(
    "verify",
    examples=(
        "beforehand verify",
        "beforehand verify --heads witness/desk.heads",
        "beforehand verify --journal backup.db --json",
    ),
)
@click.option(
    "--heads", "heads_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Compare the journal with the heads in FILE, which `beforehand heads` printed.",
)  # fmt: skip
async def verify(call: CommandCall, heads_file: Path | None) -> int:
    """Verify that no record and no ledger entry was changed, removed or inserted.

    Every hash is computed again, every number must be there, and the whole is compared
    with the anchor next to the journal. The listing of runs and the use of shared
    budgets are compared with the records. Each damaged place is named, and the exit status
    is then 4. A user who can write the journal can write its anchor too: only heads that
    were kept elsewhere show what such a user rewrote or cut off.
    """
    async with call.with_raw_reader(tells_doubts=False) as (reader, raw_reader):
        kept = Kept()
        if heads_file is not None:
            kept = Kept(read_heads(heads_file, reader.identity.namespace), head_keys(reader.identity.sidecar(KEYS)))
        found = await check(reader, raw_reader, kept)
        doubt = reader.identity.reason
    status = DIVERGED if found.broken else DONE
    if call.screen.wrote_json(found):
        return status
    read = f"{count(found.runs, 'run')}, {count(found.records, 'record')}, {count(found.streams, 'ledger stream')}"
    if found.heads:
        read += f", {count(found.heads, 'head')}"
    if not found.broken:
        call.screen.line(("All chains are intact", "bold green"), f": {read}.")
        if found.heads > found.signatures:
            call.screen.note(f"The signatures of the heads were not checked without their key. Give it in {VARIABLE}.")
        if doubt:  # a copy, say: nothing is missing, but it cannot be shown to be the newest
            call.screen.note(f"But {doubt}. Next: beforehand doctor")
        return status
    call.screen.line((f"{count(len(found.broken), 'place')} broken", "bold red"), f", of {read}:")
    for broken in found.broken:
        what = "record" if broken.chain.startswith("run ") else "number"
        call.screen.line(f"  {safe(broken.chain)}, {what} {broken.record}: {safe(broken.why)}")
    call.screen.note("Next: keep a copy of the file as it is, and compare it with a backup.")
    return status


@command("heads", examples=("beforehand heads", "beforehand heads >> witness/desk.heads"))
async def heads(call: CommandCall) -> None:
    """Print the signed head of the journal as one line of JSON.

    A head has the numbers of the last record and the last ledger entry, and hashes
    over everything up to them. Keep the lines where those who can write the journal
    cannot; `beforehand verify --heads FILE` then shows what was changed or cut off
    before the newest of them. Heads are signed with the key in BEFOREHAND_HEAD_KEY,
    else with one that is made next to the journal. `beforehand webhooks add NAME URL
    --on journal.head` lets a worker post them.
    """
    async with call.reader(tells_doubts=False) as reader:
        # Checked before a key is made: a journal that is not trusted gets no head, and nothing is written beside it.
        keys = (
            own_head_keys(reader.identity.sidecar(KEYS), SystemRng()) if reader.identity.trust != "distrustful" else ()
        )
        head = await signed_head(reader.journal, reader.identity, SystemClock().wall_ms(), keys)
    click.echo(line_of(head))


@command("doctor", examples=("beforehand doctor", "beforehand doctor --rebuild", "beforehand doctor --trust anna"))
@click.option(
    "--rebuild",
    "rebuilding",
    is_flag=True,
    help="Recompute the listing of runs and the use of shared budgets from records.",
)
@click.option(
    "--trust", "by", metavar="NAME", help="Trust a journal that looks copied or restored; your name is recorded."
)
@click.option(
    "--newest", is_flag=True, help="With --trust: state that this file is the newest one and nothing was lost."
)
async def doctor(call: CommandCall, rebuilding: bool, by: str | None, newest: bool) -> None:
    """Examine the journal: where it is, how it is stored, whether it can be trusted.

    A journal that was copied, rolled back or restored sends nothing until --trust.
    It is then treated as possibly incomplete: effects that it does not hold may have been
    sent. With --newest it is trusted as complete.
    """
    if newest and by is None:
        raise UsageError("--newest needs --trust", next_step="beforehand doctor --trust NAME --newest")
    done: dict[str, object] = {}
    if rebuilding or by is not None:
        async with call.serving() as service:
            if by is not None:
                done["trust"] = await trust(service.engine, by, newest=newest)
            if rebuilding:
                done["rebuilt"] = await rebuild(service.engine)
    async with call.with_raw_reader(tells_doubts=False) as (reader, raw_reader):
        found = await facts(reader, raw_reader)
        finder, rows = UndrivenFinder(reader, SystemClock().wall_ms()), await reader.journal.runs(wakeable=True)
        lost = await finder.lost(key for queue in await reader.journal.queues() for key in queue.agents)
        undriven = commands_for(
            [(row.agent, row.program, await finder.find(row)) for row in rows]
            + [(agent, program, one) for (agent, program), one in lost.items()]
        )
    if call.screen.wrote_json({"journal": found.document(), **done}):
        return
    _show(call.screen, found, [*found.abandoned[:10], *(f"runs of {agent} in queues" for agent, _ in lost)])
    for next_step in undriven:
        call.screen.next(next_step)
    _show_done(call.screen, done)


def _show(screen: Screen, found: JournalFacts, undriven: list[str]) -> None:
    runs = ", ".join(f"{number} {status}" for status, number in found.runs.items()) or "none"
    stored, opened = found.storage, ", ".join(found.open_operations[:10])
    rows = [
        ("journal", stored.location + ("" if stored.bytes is None else f" ({stored.bytes // 1024} KiB)")),
        ("stored", stored.engine),
        ("namespace", found.namespace),
        ("incarnation", found.incarnation),
        ("trust", found.trust + (f": {found.reason}" if found.reason else "")),
        ("runs", runs),
        ("open", opened + (" ..." if len(found.open_operations) > 10 else "") or "no operation"),
        ("undriven", ", ".join(undriven) or "no run waits for a worker"),
        ("paused", _paused(found.paused_tools) or "no tool"),
        ("ledger", count(found.ledger_entries, "entry", "entries")),
        ("unreadable", "; ".join(found.unreadable) or "no run"),
        ("refused", "; ".join(found.refused_entries) or "no ledger entry"),
        ("housekeeping", "; ".join(found.housekeeping) or "no process reports a failure"),
    ]
    styles = {"trust": "" if found.trust == "trusted" else "bold red"}
    screen.show(grid([(phrase((name, "dim")), phrase((text, styles.get(name, "")))) for name, text in rows]))
    for notice in found.notices:
        screen.line(("Note: ", "dim"), notice)
    if found.trust == "distrustful":
        screen.line("Nothing is sent. Find out which file is the newest; then: beforehand doctor --trust NAME")


def _paused(tools: dict[str, str]) -> str:
    return ", ".join(why if tool == ALL else f"{tool} ({why})" for tool, why in tools.items())


def _show_done(screen: Screen, done: dict[str, object]) -> None:
    if "trust" in done:
        screen.line(f"The journal is {done['trust']} now.")
    rebuilt = done.get("rebuilt")
    if isinstance(rebuilt, Rebuilt):
        screen.line(f"Rebuilt the listing of {count(rebuilt.runs, 'run')}: {len(rebuilt.changed)} changed.")
        if rebuilt.counters:
            screen.line(f"Computed anew: {'; '.join(rebuilt.counters)}")
        if rebuilt.busy:
            screen.line(f"Skipped, because a process drives them: {', '.join(rebuilt.busy)}")
