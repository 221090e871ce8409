"""The command line as tests call it: real commands, a real journal file, and a desk whose effects are counted."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from beforehand.cli.main import main
from tests import forked

# Each effect leaves a line in a file beside the desk, so that it is counted outside the process.
DESK = '''
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from beforehand import DidNotHappen, Happened, Key, Operation, Rejected, Run, Verdict, agent, current_operation, tool

WORLD = Path(__file__).with_name("world.txt")


def happened(what: str) -> None:
    with WORLD.open("a") as world:
        world.write(what + "\\n")
    if os.environ.get("DIE_AFTER") == what.split()[0]:
        os.kill(os.getpid(), 9)


@dataclass
class Ticket:
    id: str
    cents: int = 500
    mode: str = ""


@dataclass
class Ruling:
    cents: int
    why: str
    confidence: float
    usage: dict[str, int]


async def rule(ticket: Ticket) -> Ruling:
    """The model: it answers within policy."""
    return Ruling(ticket.cents, "within policy", 0.9, {"input_tokens": 120, "output_tokens": 30})


@tool(effect="read")
async def stock(sku: str) -> int:
    """How many are left."""
    return 7


@tool(idempotency=Key(ttl=timedelta(hours=24)))
async def refund(order: str, cents: int) -> str:
    """Pay the money back."""
    if cents > 10_000:
        raise Rejected("over the limit", code="limit")
    happened(f"refund {order} {current_operation().key}")
    return f"r-{order}"


@tool
def restock(sku: str) -> None:
    """Put it back on the shelf."""
    happened(f"restock {sku}")
    if sku == "lost":
        raise TimeoutError("no answer")


@agent(run_id="ticket-{ticket.id}")
async def desk(run: Run, ticket: Ticket) -> str:
    ruling = await run.decide(rule, ticket)
    await stock("mug")
    reference = await refund(ticket.id, ruling.cents)
    await restock(ticket.mode or "mug")
    if ticket.mode == "wait":
        reference += str(await run.wait_for("approved", "boss"))
    if ticket.mode == "boom":
        raise ValueError("boom")
    return reference
'''


@dataclass(frozen=True)
class Said:
    """What one call of the command line said, and the status it ended with."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def words(self) -> str:
        """The text without its line breaks and the marks behind them, for sentences that are folded."""
        return " ".join(re.sub(r"\n *\| ", " ", self.out).split())

    @property
    def remarks(self) -> str:
        return " ".join(self.err.split())


@dataclass(frozen=True)
class Lab:
    """A directory with a desk in it, and the command line called from there."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def __call__(self, *arguments: str, given: str | bytes | None = None, **environment: str) -> Said:
        """Call a command in this process."""
        result = CliRunner(env={**self.environment, **environment}).invoke(main, list(arguments), input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)

    def apart(self, *arguments: str, **environment: str) -> Said:
        """Call a command in a process of its own."""
        ended = forked.run(self.command(*arguments), cwd=self.directory, env=self.surroundings(environment))
        return Said(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in a process of its own; what it says on standard error can be read line by line."""
        return forked.start(
            self.command(*arguments), cwd=self.directory, env=self.surroundings(environment),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def command(self, *arguments: str) -> list[str]:
        return ["-P", "-m", "beforehand", *arguments]

    def surroundings(self, environment: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **self.environment, **environment}

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def change(self, old: str, new: str) -> str:
        """A desk whose code has changed, of the same program; the target that names it."""
        assert old in DESK
        changed = DESK.replace(old, new).replace('.id}")\nasync def desk', '.id}", program="desk")\nasync def desk')
        self.write("changed.py", changed)
        return "changed.py:desk"

    @property
    def journal(self) -> Path:
        return self.directory / "beforehand.db"

    @property
    def world(self) -> list[str]:
        """What really happened."""
        path = self.directory / "world.txt"
        return path.read_text().splitlines() if path.exists() else []

    def seen(self, item: str) -> list[str]:
        """The options of a yes to this item by a person who has just read it."""
        return ["--shown", self("inbox", "--item", item, "--json").json["digest"][:12]]

    def ticket(self, number: str, **fields: object) -> str:
        return json.dumps({"id": number, **fields})
