"""`beforehand demo`: the refund desk with and without Beforehand, under the same faults and kills."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.prompt import Prompt

from beforehand.demo.contest import PYTHON, Contest, Counts, DemoError, Result, count, refunded_twice
from beforehand.demo.display import LEGEND, Scoreboard, final_table, money_line
from beforehand.demo.scenario import REQUESTS, make_requests, make_schedule, write_requests
from beforehand.demo.sides import WithBeforehand, WithoutBeforehand, place_of
from beforehand.extensions import has_extension
from beforehand.installation import console_command

WORDS: Final = {"happened": ("--happened",), "did-not-happen": ("--did-not-happen", "--give-up")}


def run_demo(seed: int = 7, *, as_json: bool = False, keep: Path | None = None, ask: bool = True) -> int:
    """Run both sides and show the table. Returns the exit status.

    `keep` is the directory for the journal and the logs, kept afterwards; without it a temporary one
    is used, which `as_json` removes. `ask` lets the viewer resolve one waiting effect, where standard
    input and output are a terminal. The status is 1 if Beforehand's own row has a `twice`, a `never` or
    a `misreported`, or if the demo itself could not run; else 0.
    """
    console = Console(stderr=as_json, highlight=False)
    try:
        with _folder(keep, temporary=as_json) as folder:
            return _Demo(seed, folder, console).run(as_json=as_json, ask=ask)
    except DemoError as error:
        console.print(f"The demo could not run: {error}", style="red", soft_wrap=True)
        return 1


class _Demo:
    def __init__(self, seed: int, folder: Path, console: Console) -> None:
        self._seed = seed
        self._console = console
        self._folder = folder
        self._requests = folder / "requests.jsonl"
        requests = make_requests(seed, REQUESTS)
        self._prices = {request.id: request.cents for request in requests}
        write_requests(self._requests, requests)
        self._beforehand = WithBeforehand(self._requests, folder)
        self._sides = (WithoutBeforehand(self._requests, folder), self._beforehand)

    def run(self, *, as_json: bool, ask: bool) -> int:
        results = self._contest(show=not as_json)
        rows = {side: count(range(1, REQUESTS + 1), result.effects, result.report) for side, result in results.items()}
        lost = {side: refunded_twice(self._prices, result.effects) for side, result in results.items()}
        if as_json:
            sides = {
                side: msgspec.structs.asdict(row) | {"kills": results[side].kills, "refunded_twice_cents": lost[side]}
                for side, row in sorted(rows.items())
            }
            print(msgspec.json.encode({"seed": self._seed, **sides}).decode())
        else:
            self._show(rows, results, lost)
            self._lead_on(results[self._beforehand.name], ask=ask)
        ours = rows[self._beforehand.name]
        return 1 if ours.twice or ours.never or ours.misreported else 0

    def _contest(self, *, show: bool) -> dict[str, Result]:
        scoreboard = Scoreboard(self._seed, make_schedule(self._seed), self._prices)
        contest = Contest(self._seed, self._requests, self._folder, self._sides, scoreboard.show)
        live = Live(scoreboard, console=self._console, refresh_per_second=8) if show else contextlib.nullcontext()
        with live:
            return asyncio.run(contest.run())

    def _show(self, rows: dict[str, Counts], results: dict[str, Result], lost: dict[str, int]) -> None:
        say = self._console.print
        say()
        say(final_table(rows, {side: result.kills for side, result in results.items()}))
        say(LEGEND, style="dim")
        say()
        say(money_line(lost))

    def _lead_on(self, result: Result, *, ask: bool) -> None:
        """Suggest what to do next: each command names the journal, so that it works as printed."""
        waiting, program = self._beforehand.waiting, _program()
        here = f"{program} --journal {shlex.quote(str(self._beforehand.journal))}"
        if waiting:
            resolve = [f"{here} resolve {operation} --happened" for operation in waiting]
            self._commands("What waits for you: did it happen? Look, then say so", *resolve)
            self._console.print("  or, if it is not there: --did-not-happen --give-up", style="dim")
            if ask and sys.stdin.isatty() and self._console.is_terminal:
                self._resolve_one(waiting[0], result)
        one = waiting[0] if waiting else "request-7/refund#1"
        look = (f"show {one.partition('/')[0]}", f"why {one}", "ps", "verify")
        tools = f"{program} tools beforehand.demo.with_beforehand:desk"
        self._commands("Where to look next", *(f"{here} {command}" for command in look), tools)
        install = () if has_extension("beforehand.commands", "serve") else (console_command(),)
        self._commands("The inbox in your browser", *install, f"{here} serve")

    def _commands(self, title: str, *commands: str) -> None:
        """Lines to copy: never wrapped, never read as markup."""
        self._console.print(f"\n{title}", style="bold")
        for command in commands:
            self._console.print(f"  {command}", soft_wrap=True, markup=False)

    def _resolve_one(self, operation: str, result: Result) -> None:
        service, request = place_of(operation)
        there = "" if result.effects[service, request] else "not "
        self._console.print(f"\n{operation}: you look at the {service} yourself. It is {there}there.")
        answer = Prompt.ask("Resolve it as", choices=[*WORDS, "skip"], default="skip", console=self._console)
        if answer in WORDS:
            options = (*WORDS[answer], "--by", "viewer", "--evidence", f"looked at the {service}")
            command = [*PYTHON, "beforehand", "resolve", operation, *options]
            environment = os.environ | {"BEFOREHAND_JOURNAL": str(self._beforehand.journal)}
            subprocess.run(command, env=environment, check=False)  # noqa: S603 - our own command line


@contextlib.contextmanager
def _folder(keep: Path | None, *, temporary: bool) -> Generator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise DemoError(f"{keep} is not empty; a demo starts with an empty directory")
        yield keep.resolve()
    elif temporary:
        with tempfile.TemporaryDirectory(prefix="beforehand-demo-") as folder:
            yield Path(folder)
    else:
        yield Path(tempfile.mkdtemp(prefix="beforehand-demo-"))


def _program() -> str:
    """The command that runs `beforehand` here: its name, or its path in this environment."""
    if shutil.which("beforehand"):
        return "beforehand"
    return os.path.relpath(Path(sys.executable).parent / "beforehand")
