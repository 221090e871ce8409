"""A backup is put in the place of the journal: nothing is sent before an operator has confirmed it, and what was sent is not again."""

import sqlite3
from contextlib import closing
from pathlib import Path

from simulator.mutations.mutation import Mutant, planted
from simulator.mutations.operations import always
from simulator.plan import Plan, Script, Step, WorkerPlan
from simulator.world import World

STEPS = (Step("charge", "card"), Step("mail", "letter"), Step("ship", "box"))
CONFIRMED_MS = 600_000
TRUSTING = Mutant(
    "restored and trusted", "a restored journal is trusted", "beforehand.journal.sqlite.anchor:doubt", always("")
)


def live(directory: Path, seed: int, backup: Path | None = None) -> World:
    """One life of a desk; `backup` is taken while it is at work."""
    world = World(Plan(seed, (Script("run", STEPS),), (WorkerPlan("A", scripts=(0,)),)), directory=directory)

    def copy() -> None:
        assert backup is not None
        with closing(sqlite3.connect(directory / "journal.db")) as here, closing(sqlite3.connect(backup)) as there:
            here.backup(there)

    def confirm() -> None:
        for life in world.lives.values():
            if life.app is not None and life.actor.alive:
                world.loop.inside(life.actor, life.disk.confirm("doubtful", "an operator"))
                life.leave()

    if backup is not None:
        world.later(12, copy)
    else:
        world.later(CONFIRMED_MS, confirm)
    try:
        report = world.simulate()
    finally:
        for life in world.lives.values():
            life.disk.die()
        assert world.files is not None
        world.files.close()
    assert not report.violations, report.violations
    return world


def restored(tmp_path: Path) -> list[int]:
    """When something happened in the world after the restore."""
    before = live(tmp_path, 1, tmp_path / "backup.db")
    assert sum(len(service.effects) for service in before.services.values()) == len(STEPS)
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "backup.db").rename(tmp_path / "journal.db")
    after = live(tmp_path, 2)
    return [effect.at_ms for service in after.services.values() for effect in service.effects]


def test_a_restored_journal_sends_nothing_before_somebody_confirms(tmp_path: Path):
    assert all(at >= CONFIRMED_MS for at in restored(tmp_path))


def test_a_plain_write_after_the_backup_is_not_sent_again(tmp_path: Path):
    assert len(restored(tmp_path)) < len(STEPS)


def test_a_runtime_that_trusts_it_is_found_out(tmp_path: Path):
    with planted(TRUSTING):
        early = restored(tmp_path)
    assert any(at < CONFIRMED_MS for at in early)
