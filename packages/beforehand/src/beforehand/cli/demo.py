"""`demo`: the refund desk with and without Beforehand."""

from __future__ import annotations

from pathlib import Path

import click

from beforehand.cli.common import CommandCall, command
from beforehand.errors import UsageError
from beforehand.installation import extra_command


@command("demo", examples=("beforehand demo", "beforehand demo --seed 42", "beforehand demo --json --seed 7"))
@click.option("--seed", default=7, show_default=True, metavar="N", help="Repeats the same faults and kills.")
@click.option(
    "--keep", metavar="DIR", type=click.Path(path_type=Path), help="Keep the journal and logs in this new directory."
)
@click.option("--no-ask", is_flag=True, help="Do not offer to resolve one of the waiting effects.")
def demo(call: CommandCall, seed: int, keep: Path | None, no_ask: bool) -> int:
    """Watch a refund desk work through a file of requests while it is killed again and again.

    The desk runs twice, side by side and with the same faults and kills: with Beforehand, and
    as such code is usually written. Everything runs on this machine. The exit status is 1
    if Beforehand did an effect twice, lost one, or reported one wrongly.
    """
    try:
        from beforehand.demo.main import run_demo  # noqa: PLC0415 - the demo's services are an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the demo needs {error.name}, which is not installed", next_step=extra_command("demo")
        ) from error
    return run_demo(seed, as_json=call.screen.as_json, keep=keep, ask=not no_ask)
