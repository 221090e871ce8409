"""`tools`: what each tool of an agent promises, and what is dangerous about it."""

from __future__ import annotations

from typing import Final

import click

from holdfast.agent.registry import gather_tools
from holdfast.errors import UsageError
from holdfast.interfaces.cli.common import Call, command
from holdfast.interfaces.cli.place import project_targets
from holdfast.interfaces.cli.screen import Screen, grid, phrase
from holdfast.interfaces.cli.targets import load_agents
from holdfast.interfaces.contracts import Clauses, clauses

_STYLES: Final = {"none": "green", "low": "green", "some": "yellow", "high": "bold red"}
_ORDER: Final = ("high", "some", "low", "none")


@command("tools", examples=("holdfast tools desk.py:refund_desk", "holdfast tools desk.py:refund_desk --json"))
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
def tools(call: Call, targets: tuple[str, ...]) -> None:
    """Show the contract of each tool that the agents TARGET may use: most dangerous first."""
    agents = load_agents(targets or project_targets())
    if not agents:
        raise UsageError("name an agent whose tools are to be shown", next_step="holdfast tools desk.py:refund_desk")
    found = [
        clauses(tool.contract, redacted=tool.redact, claims=tool.claims, where=tool.where)
        for tool in gather_tools(agents, ()).values()
    ]
    found.sort(key=lambda one: (_ORDER.index(one.danger), one.tool))
    if call.screen.as_json:
        call.screen.document({"tools": found})
        return
    if not found:
        call.screen.line("These agents see no tools.")
    for one in found:
        _show(call.screen, one)


def _show(screen: Screen, one: Clauses) -> None:
    danger = "no danger" if one.danger == "none" else f"{one.danger} danger"
    screen.line((one.tool, "bold"), f"  {one.effect}  ", (danger, _STYLES[one.danger]))
    rows = [(phrase("  +"), phrase(text)) for text in one.promises]
    rows += [(phrase(("  !", "bold red")), phrase(text)) for text in one.dangers]
    rows.append((phrase("  ?"), phrase(f"after an attempt that may have landed, {one.after_doubt}")))
    screen.show(grid(rows, (3,)))
    screen.line("")
