"""What is measured and what it must reach: the two tables that the driver works through.

A case is one subject with its arguments, run in a fresh process. A goal compares the figure of one case,
often as a ratio to another one, with a bound. Ratios carry over from machine to machine; the few absolute
bounds (the times of import and replay) leave room for one that is several times slower than a current one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Metric = Literal[
    "rate", "replay", "replay_growth", "bytes", "import", "memory_growth", "wake", "wake_steps", "recovery"
]


@dataclass(frozen=True)
class Case:
    """How one subject is started; `peer` says that it runs in the environment of the peers."""

    script: str
    arguments: tuple[str, ...]
    says: str
    peer: bool = False


@dataclass(frozen=True)
class Goal:
    """One promise about speed or size.

    `rate`: the median over rounds of the subject's steps per second over those of `baseline`. The other
    metrics are functions of `probes.py`.
    """

    name: str
    says: str
    subject: str
    metric: Metric
    unit: str
    baseline: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, figure: float) -> bool:
        if self.at_least is not None:
            return figure >= self.at_least
        assert self.at_most is not None, self
        return figure <= self.at_most

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g} {self.unit}"
        return f"at most {self.at_most:g} {self.unit}"


def _ours(kind: str, steps: int, runs: int = 1) -> tuple[str, ...]:
    return ("--kind", kind, "--steps", str(steps), "--runs", str(runs))


RAW: Final = "raw"
CASES: Final[Mapping[str, Case]] = {
    RAW: Case("raw.py", ("--commits", "2", "--steps", "600"), "sqlite3, two commits a step"),
    "raw-one": Case("raw.py", ("--commits", "1", "--steps", "1200"), "sqlite3, one commit a step"),
    "plain": Case("ours.py", _ours("plain", 1000), "Beforehand, plain write (outcome waited for)"),
    "riding": Case("ours.py", _ours("riding", 1500), "Beforehand, keyed write (outcome rides)"),
    "read": Case("ours.py", _ours("read", 3000), "Beforehand, read"),
    "plain-100": Case("ours.py", _ours("plain", 20, 100), "Beforehand, plain write, 100 runs"),
    "riding-100": Case("ours.py", _ours("riding", 20, 100), "Beforehand, keyed write, 100 runs"),
    "plain-1000": Case("ours.py", _ours("plain", 10, 1000), "Beforehand, plain write, 1,000 runs"),
    "worker-100": Case(
        "ours.py",
        (*_ours("plain", 20, 100), "--worker"),
        "Beforehand, plain write, 100 runs, set as `beforehand worker`",
    ),
    "worker-1000": Case(
        "ours.py",
        (*_ours("plain", 10, 1000), "--worker"),
        "Beforehand, plain write, 1,000 runs, set as `beforehand worker`",
    ),
    "tens": Case("ours.py", _ours("tens", 1000), "Beforehand, keyed writes in tens, bare"),
    "transactions": Case("ours.py", _ours("transactions", 1000), "Beforehand, the same, each ten a transaction"),
    "plans": Case("ours.py", _ours("plans", 1000), "Beforehand, the same, each ten a plan of ten steps"),
    "waking": Case("waking.py", (), "Beforehand, wake-ups in a crowd"),
    "recovering": Case("recovering.py", (), "Beforehand, recovery after a kill"),
    "journal": Case("journal.py", _ours("plain", 1000), "the journal alone, both records waited for"),
    "journal-riding": Case("journal.py", _ours("riding", 1500), "the journal alone, outcome rides"),
    "floor": Case("floor.py", ("--kind", "plain"), "a plain write with our precautions and no runtime"),
    "floor-riding": Case("floor.py", ("--kind", "riding", "--steps", "1500"), "the same, keyed write"),
    "least": Case("floor.py", ("--bare", "--kind", "plain"), "the least that a plain write can be from asyncio"),
    "least-riding": Case("floor.py", ("--bare", "--kind", "riding", "--steps", "1500"), "the same, keyed write"),
    "journal-100": Case("journal.py", _ours("plain", 20, 100), "the journal alone, 100 runs"),
    "dbos": Case("dbos_sqlite.py", ("--steps", "300"), "DBOS on SQLite as shipped", peer=True),
    "dbos-wal": Case("dbos_sqlite.py", ("--wal", "--steps", "500"), "DBOS on SQLite in WAL mode", peer=True),
    "dbos-wal-100": Case(
        "dbos_sqlite.py", ("--wal", "--steps", "20", "--runs", "100"), "DBOS in WAL mode, 100 runs", peer=True
    ),
    "langgraph": Case(
        "langgraph_sqlite.py", ("--api", "graph", "--steps", "300"), "LangGraph graph, SqliteSaver", peer=True
    ),
    "langgraph-task": Case(
        "langgraph_sqlite.py",
        ("--api", "task", "--steps", "500"),
        "LangGraph @task, SqliteSaver (does not wait for the disk)",
        peer=True,
    ),
}

SHOWN: Final = (
    "raw-one",
    "read",
    "riding-100",
    "worker-100",
    "worker-1000",
    "journal",
    "journal-riding",
    "journal-100",
    "floor",
    "floor-riding",
    "least",
    "least-riding",
)
"""Cases that no goal is about: they show what the syncs, the journal, the engine and Python itself take."""

GOALS: Final = (
    Goal("waited", "plain write against bare SQLite", "plain", "rate", "x", RAW, at_least=0.75),
    Goal("riding", "keyed write against bare SQLite", "riding", "rate", "x", RAW, at_least=1.35),
    Goal("many", "100 runs at once against bare SQLite", "plain-100", "rate", "x", RAW, at_least=6),
    Goal("thousand", "1,000 runs at once against bare SQLite", "plain-1000", "rate", "x", RAW, at_least=4),
    Goal("dbos", "keyed write against DBOS in WAL mode", "riding", "rate", "x", "dbos-wal", at_least=4),
    Goal(
        "dbos-waited",
        "plain write (two waits) against DBOS in WAL mode (one)",
        "plain",
        "rate",
        "x",
        "dbos-wal",
        at_least=2.5,
    ),
    Goal(
        "dbos-many",
        "100 runs at once against 100 of DBOS in WAL mode",
        "plain-100",
        "rate",
        "x",
        "dbos-wal-100",
        at_least=30,
    ),
    Goal("dbos-shipped", "plain write against DBOS as shipped", "plain", "rate", "x", "dbos", at_least=4),
    Goal("langgraph", "plain write against a LangGraph graph", "plain", "rate", "x", "langgraph", at_least=2.5),
    Goal(
        "langgraph-task",
        "plain write against a LangGraph @task, which does not wait",
        "plain",
        "rate",
        "x",
        "langgraph-task",
        at_least=2,
    ),
    Goal("replay", "replay of 10,000 steps, opening included", "replay", "replay", "us/step", at_most=12),
    Goal(
        "replay-linear",
        "time per replayed step, 10,000 steps over 1,000",
        "replay",
        "replay_growth",
        "x",
        at_most=1.5,
    ),
    Goal("bytes", "journal per step beyond the payload, at most", "riding", "bytes", "bytes", at_most=450),
    Goal(
        "import",
        "python -c 'from beforehand import Beforehand, agent', whole process",
        "import",
        "import",
        "ms",
        at_most=150,
    ),
    Goal(
        "memory",
        "resident memory, 20,000 steps over 1,000",
        "memory",
        "memory_growth",
        "x",
        at_most=1.15,
    ),
    Goal(
        "transaction",
        "ten writes in a transaction against the same ten",
        "transactions",
        "rate",
        "x",
        "tens",
        at_least=0.7,
    ),
    Goal("plan", "ten writes as a plan against the same ten", "plans", "rate", "x", "tens", at_least=0.5),
    Goal("wake", "one wake-up among 1,000,000 that wait, over 1,000", "waking", "wake", "x", at_most=1.5),
    Goal("recovery", "runs recovered a second after a kill, of 500", "recovering", "recovery", "1/s", at_least=400),
    Goal("wake-steps", "the same, in steps of SQLite's virtual machine", "waking", "wake_steps", "x", at_most=1.05),
)
