"""The yardstick: bare sqlite3, one connection, one or two durable commits a step and no runtime at all.

Timed as every subject is: from opening the file until it is closed.
"""

import argparse
import json
import sqlite3
from pathlib import Path

from measure import Mark, payload, rates, report, settled_size

SCHEMA = "create table record (seq integer primary key, run integer, step integer, kind integer, body text)"
INSERT = "insert into record (run, step, kind, body) values (1, ?, ?, ?)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--commits", type=int, choices=(1, 2), default=2)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()

    path = options.directory / "raw.db"
    connection = opened(path)
    connection.execute(SCHEMA)
    run_steps(connection, 20, options.commits)  # the first pages are made
    connection.close()
    before = settled_size(path)

    start = Mark.now()
    connection = opened(path)
    run_steps(connection, options.steps, options.commits)
    connection.close()  # folds the write-ahead log back, as the close of every subject does
    end = Mark.now()
    grown = settled_size(path) - before
    report(**rates(options.steps, start, end), bytes_per_step=grown / options.steps)


def opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    return connection


def run_steps(connection: sqlite3.Connection, steps: int, commits: int) -> None:
    """Every execute is a transaction of its own: the connection is in autocommit mode."""
    for index in range(steps):
        if commits == 2:
            connection.execute(INSERT, (index, 0, json.dumps({"index": index})))
        connection.execute(INSERT, (index, 1, json.dumps(payload(index))))


if __name__ == "__main__":
    main()
