"""DBOS on SQLite: a workflow of no-op steps, as shipped (rollback journal) or put into WAL mode."""

import argparse
import sqlite3
from pathlib import Path

import sqlalchemy
from dbos import DBOS, DBOSConfig
from measure import Mark, payload, peak_mib, rates, report, settled_size

BUSY_MS = 30_000


@DBOS.step()
def step(index: int) -> dict[str, object]:
    return payload(index)


@DBOS.workflow()
def work(count: int) -> int:
    for index in range(count):
        step(index)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--wal", action="store_true")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    path = options.directory / "dbos.db"
    DBOS(config=configuration(path, wal=options.wal))
    DBOS.launch()
    try:
        figures = rate(options.steps, options.runs)
    finally:
        DBOS.destroy()
    total = options.steps * options.runs
    report(**figures, bytes_per_step=settled_size(path) / total, peak_mib=peak_mib())


def configuration(path: Path, *, wal: bool) -> DBOSConfig:
    url = f"sqlite:///{path}"
    chosen: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "run_admin_server": False,
        "log_level": "ERROR",
        "console_log_level": "ERROR",
    }
    if wal:
        chosen["system_database_engine"] = wal_engine(url)
    return chosen


def wal_engine(url: str) -> sqlalchemy.Engine:
    """An engine like the one DBOS makes for itself, but in WAL mode with full syncs."""
    engine = sqlalchemy.create_engine(url, pool_size=20, max_overflow=0)

    @sqlalchemy.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for setting in ("journal_mode=wal", "synchronous=full", f"busy_timeout={BUSY_MS}", "foreign_keys=on"):
            connection.execute(f"pragma {setting}")

    return engine


def rate(steps: int, runs: int) -> dict[str, float]:
    work(5)  # its first statements are compiled
    start = Mark.now()
    if runs == 1:
        work(steps)
    else:
        for handle in [DBOS.start_workflow(work, steps) for _ in range(runs)]:
            handle.get_result()
    return rates(steps * runs, start, Mark.now())


if __name__ == "__main__":
    main()
