"""The net under a rebuilding: what each of many seeds did in an older tree, and whether this checkout does the same.

    python -m simulator.transcripts compare        this checkout with what is kept
    python -m simulator.transcripts show 500017    one seed, part by part, in the older tree and here
    python -m simulator.transcripts keep           keep what this tree does, in place of what was kept

Kept are, for each seed, its plan, the places where faults struck it, and a digest for each part of its transcript: the
requests and the effects at the services, the records, the listing, the ledger, and all that agents, callers and people
received. The plan is kept whole, so a generator that draws otherwise changes nothing here. Numbers are drawn by their
purpose, and a fault strikes where it struck before: at the n-th point of this name, about this record of this run. So
another order of two commits, or one more in another run, moves no fault. A tenth of the seeds runs on SQLite files.

The commit that was kept stays runnable: `show` and the report of a difference check it out beside this tree.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec
from msgspec.structs import replace

from simulator.campaign import in_turn, on_all_cores
from simulator.generator.plans import RANGES, draw
from simulator.plan import Fault, Plan
from simulator.processes.nemesis import Place
from simulator.services.network import STOPS
from simulator.world import Conditions, Journal, Report, World, world_of

ROOT: Final = Path(__file__).resolve().parent.parent
KEPT: Final = ROOT / "simulator" / "transcripts.json.xz"
OLDER: Final = ROOT / ".older-tree"
"""Where the commit that was kept is checked out."""
EACH: Final = 450
"""Seeds of each kind of plan."""
BATCH: Final = 5
KINDS: Final = {name: first for name, first in RANGES.items() if name != "bodies"}
"""The kinds of plans that are kept. In `bodies` it varies which of two parts cancelled together leaves first."""
ON_FILES: Final = 10
"""Every tenth seed runs on SQLite files."""
STEADY: Final = 2
"""A seed is simulated so often again before a difference counts.

Python keeps tasks in sets by their address, so about one plan in a thousand ends a millisecond earlier or later from
one simulation to the next.
"""
TOLD: Final = 3
"""Of the seeds that differ, the first ones are shown with their differences, and the others are named."""


def plan_of(seed: int) -> Plan:
    """The plan of a seed. Odd seeds drive one run of it in one worker, even ones all its runs in all its workers.

    So do odd ones whose plan stops a process in a call: it takes another process to notice that.
    """
    plan = draw(seed)
    if seed % 2 == 0 or any(fault.kind in STOPS for fault in plan.faults):
        return plan
    # Where runs are submitted, a submitted one is driven: the world has queues only for those.
    submitted = plan.submissions[seed % len(plan.submissions) :][:1] if plan.submissions else ()
    script = plan.scripts[submitted[0].script if submitted else seed % len(plan.scripts)]
    worker = replace(plan.workers[0], contained=False, scripts=() if submitted else (0,))
    return replace(
        plan, scripts=(script,), workers=(worker,), undeclared=(),
        tellings=tuple(telling for telling in plan.tellings if telling.run == script.id),
        orders=tuple(order for order in plan.orders if order.run.partition("~")[0] == script.id),
        submissions=tuple(replace(one, script=0, workers=(0,) * len(one.workers)) for one in submitted),
    )  # fmt: skip


class Transcript(msgspec.Struct, frozen=True):
    """What one seed did: the digest of each part, and where faults struck."""

    plan: Plan
    struck: tuple[tuple[Place, Fault], ...]
    digests: dict[str, str]


class Kept(msgspec.Struct, frozen=True):
    """The transcripts of one commit."""

    commit: str
    transcripts: list[Transcript]


Parts = dict[str, list[str]]


def parts_of(plan: Plan, strikes: dict[Place, Fault] | None = None) -> tuple[Parts, dict[Place, Fault]]:
    """Simulate a plan: its transcript, part by part, and where faults struck, unless `strikes` says where they do."""
    journal: Journal = "sqlite" if plan.seed % ON_FILES == ON_FILES - 1 else "memory"
    with world_of(plan, journal=journal, conditions=Conditions(by_purpose=True, strikes=strikes)) as world:
        return _parts(world, world.simulate()), world.nemesis.places


def _parts(world: World, report: Report) -> Parts:
    parts = {
        "requests": list(map(str, world.requests)),
        "effects": [str(effect) for service in world.services.values() for effect in service.effects],
        "violations": list(map(str, report.violations)),
        "what was received": [report.digest],
        "struck": list(map(str, world.nemesis.places.items())),
    }
    if world.files is not None:
        return parts | {"stored": [part.decode(errors="backslashreplace") for part in world.files.everything()]}
    stored = world.store.backup()
    return parts | {
        "records": [f"{run} {row.seq}: {row.body.decode()}" for run, (_, rows) in stored.runs.items() for row in rows],
        "chains": [row.hash.hex() for _, rows in stored.runs.values() for row in rows],
        "listing": [str(listing) for listing, _ in stored.runs.values()],
        "ledger": list(map(str, stored.ledger)),
    }


def read_back(plan: Plan) -> Plan:
    """The plan as JSON gives it back (a tuple of an input is a list then), with each default as the very object.

    A field is left out of what is stored only where its value is the object that is its default.
    """
    back = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    _with_defaults(back)
    return back


def _with_defaults(value: Any) -> None:
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            own: Any = getattr(value, field.name)
            if type(own) is type(field.default) and own == field.default:
                msgspec.structs.force_setattr(value, field.name, field.default)
            else:
                _with_defaults(own)
    elif isinstance(value, dict):
        _with_defaults(list(cast("dict[str, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[Any]", value):
            _with_defaults(part)


def digests_of(parts: Parts) -> dict[str, str]:
    """A short digest of each part."""
    return {name: sha256("\n".join(part).encode()).hexdigest()[:12] for name, part in parts.items()}


def differs(older: Transcript, *, again: int = STEADY) -> list[str]:
    """The parts in which this tree does something else than the one that was kept, also when it is asked `again`."""
    found: list[str] = []
    for _ in range(1 + again):
        now = digests_of(parts_of(older.plan, dict(older.struck))[0])
        found = [part for part in {**older.digests, **now} if older.digests.get(part) != now.get(part)]
        if not found:
            break
    return found


# --- many seeds -------------------------------------------------------------------------------------------------------


def transcripts(seeds: range) -> list[Transcript]:
    """The transcripts of some seeds, without those that differ from one simulation of this tree to the next."""
    found: list[Transcript] = []
    for seed in seeds:
        plan = read_back(plan_of(seed))
        parts, struck = parts_of(plan)
        one = Transcript(plan, tuple(struck.items()), digests_of(parts))
        if unsteady := differs(one):
            click.echo(f"seed {seed} is left out: it differs from itself in {', '.join(unsteady)}", err=True)
        else:
            found.append(one)
    return found


def kept() -> Kept:
    """What is kept. Raises `click.ClickException`."""
    if not KEPT.is_file():
        raise click.ClickException(f"nothing is kept in {KEPT.name} yet: make transcripts ARGS=keep")
    found = msgspec.json.decode(lzma.decompress(KEPT.read_bytes()), type=Kept)
    return Kept(found.commit, [msgspec.structs.replace(one, plan=read_back(one.plan)) for one in found.transcripts])


_COMPARED: list[Transcript] = []
"""What processes that are forked for the comparison find here: it is large, and they need no copy."""


def differing(older: Sequence[Transcript]) -> Iterator[list[tuple[int, list[str]]]]:
    """The seeds that differ, with the parts in which they do, batch after batch."""
    _COMPARED[:] = older
    yield from on_all_cores(_differing, in_turn([range(len(older))], BATCH), os.cpu_count() or 1)


def _differing(places: range) -> list[tuple[int, list[str]]]:
    compared = [(_COMPARED[place].plan.seed, differs(_COMPARED[place])) for place in places]
    return [one for one in compared if one[1]]


# --- the command ------------------------------------------------------------------------------------------------------


@click.group()
def main() -> None:
    """Compare what this checkout does, seed by seed, with an older tree.

    \b
    python -m simulator.transcripts compare --most 200
    python -m simulator.transcripts show 42
    python -m simulator.transcripts keep
    """  # noqa: D301 - click reads the character that keeps lines apart
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of texts must be the same in both
        os.execve(  # noqa: S606 - this program, with the arguments it was given
            sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )


@main.command()
@click.option("--each", type=click.IntRange(1), default=EACH, show_default=True, help="Seeds of each kind of plan.")
def keep(each: int) -> None:
    """Keep what this tree does now. It has to be committed, so that it can be run again."""
    if _git("status", "--porcelain"):
        raise click.ClickException("commit first: what is kept has to be runnable later")
    found: list[Transcript] = []
    for some in on_all_cores(
        transcripts, in_turn([range(first, first + each) for first in KINDS.values()], BATCH), os.cpu_count() or 1
    ):
        found += some
        _progress(len(found), each * len(KINDS))
    found.sort(key=lambda one: one.plan.seed)
    body = msgspec.json.encode(Kept(_git("rev-parse", "HEAD"), found))
    KEPT.write_bytes(lzma.compress(body, preset=9))
    click.echo(f"{len(found):,} transcripts of {_git('rev-parse', '--short', 'HEAD')} are in {KEPT.name}")


@main.command()
@click.option("--most", type=click.IntRange(1), help="So many seeds, spread over all kinds. Default: all.")
def compare(most: int | None) -> None:
    """Compare this checkout with what is kept. Exit status 1 where a seed differs."""
    older = kept()
    chosen = older.transcripts[:: max(1, len(older.transcripts) // most)] if most else older.transcripts
    found: list[tuple[int, list[str]]] = []
    for number, some in enumerate(differing(chosen), 1):
        found += some
        _progress(min(number * BATCH, len(chosen)), len(chosen))
    for seed, parts in sorted(found)[:TOLD]:
        click.echo(f"seed {seed} differs in {', '.join(parts)}")
        try:
            _tell(older, seed)
        except click.ClickException as error:  # the older commit is not in this clone; which seeds differ still counts
            click.echo(f"  {error.message}")
    if len(found) > TOLD:
        click.echo("also: " + " ".join(str(seed) for seed, _ in sorted(found)[TOLD:]))
    click.echo(f"{len(chosen):,} seeds compared with {older.commit[:8]}: {len(found)} differ")
    sys.exit(bool(found))


@main.command()
@click.argument("seed", type=int)
@click.option("--json", "as_json", is_flag=True, help="All parts of this tree, for another program.")
def show(seed: int, as_json: bool) -> None:
    """Show the first difference in each part of one seed."""
    older = kept()
    if as_json:
        click.echo(msgspec.json.encode(_here(older, seed)))
    else:
        _tell(older, seed)


def _here(older: Kept, seed: int) -> Parts:
    one = next((one for one in older.transcripts if one.plan.seed == seed), None)
    if one is None:
        raise click.ClickException(f"no transcript of seed {seed} is kept")
    return parts_of(one.plan, dict(one.struck))[0]


def _tell(older: Kept, seed: int) -> None:
    here, there = _here(older, seed), _there(older.commit, seed)
    for part in {**there, **here}:
        before, now = there.get(part, []), here.get(part, [])
        for number in range(max(len(before), len(now))):
            one, other = (lines[number] if number < len(lines) else "nothing more" for lines in (before, now))
            if one != other:
                click.echo(f"  {part}, number {number + 1}:\n    {older.commit[:8]}: {one}\n    here:     {other}")
                break


def _there(commit: str, seed: int) -> Parts:
    """The parts of a seed in the tree that was kept, with the plans that are kept here."""
    if not OLDER.is_dir() or _git("rev-parse", "HEAD", at=OLDER) != commit:
        _git("worktree", "prune")
        _git("worktree", "add", "--force", "--detach", str(OLDER), commit)
    (OLDER / "simulator" / KEPT.name).write_bytes(KEPT.read_bytes())
    sources = [str(OLDER), *(str(one) for one in sorted(OLDER.glob("packages/*/src")))]
    told = subprocess.run(  # noqa: S603 - this module, in the older tree
        [sys.executable, "-W", "ignore", "-m", "simulator.transcripts", "show", str(seed), "--json"],
        cwd=OLDER, env=os.environ | {"PYTHONPATH": os.pathsep.join(sources)}, stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    if told.returncode:
        raise click.ClickException(f"commit {commit[:8]}, which is in {OLDER.name}, could not simulate seed {seed}")
    return msgspec.json.decode(told.stdout, type=Parts)


def _git(*words: str, at: Path = ROOT) -> str:
    command = ["git", "-C", str(at), *words]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - as written here
    if told.returncode:
        raise click.ClickException(f"git {' '.join(words)} failed; a difference needs the history of this repository")
    return told.stdout.strip()


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty() or done == of or done % 100 < BATCH:
        click.echo(f"{done:,} of {of:,}", err=True)


if __name__ == "__main__":
    main()
