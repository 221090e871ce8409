"""`tools`: the contract of each tool of an agent, its dangers, and what it cannot survive."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from beforehand.agent.agent import gather_tools
from beforehand.cli.apps import load_agents
from beforehand.cli.common import CommandCall, command
from beforehand.cli.config import project_targets, shown_path
from beforehand.cli.exit_status import DONE, FAILED
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.errors import UsageError
from beforehand.inspect.contracts import clauses
from beforehand.inspect.lint import SEVERITIES, AnyAgent, LintFinding, lint
from beforehand.inspect.text import count

_STYLES: Final = {"none": "green", "low": "green", "some": "yellow", "high": "bold red"}
_ORDER: Final = ("high", "some", "low", "none")
_SEVERE: Final = {"danger": "bold red", "warning": "yellow", "note": "dim"}


@command(
    "tools",
    examples=(
        "beforehand tools desk.py:refund_desk",
        "beforehand tools --lint desk.py:refund_desk",
        "beforehand tools --lint --accept plain-write:restock desk.py:refund_desk",
    ),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--lint", "linting", is_flag=True, help="Report what each contract cannot survive, and what to add.")
@click.option(
    "--accept", multiple=True, metavar="RULE[:TOOL]", help="With --lint: accept this finding; it is not reported."
)
def tools(call: CommandCall, targets: tuple[str, ...], linting: bool, accept: tuple[str, ...]) -> int:
    """Show the contract of each tool that the agents TARGET may use: most dangerous first.

    --lint reports what each contract cannot survive and what to add. Its exit status is 1 if
    there is a danger or a warning, and 0 if there are only notes.
    """
    agents = load_agents(targets or project_targets())
    if not agents:
        raise UsageError("name an agent whose tools are to be shown", next_step="beforehand tools desk.py:refund_desk")
    if accept and not linting:
        raise UsageError("--accept goes with --lint", next_step="beforehand tools --lint --accept RULE[:TOOL] TARGET")
    return _lint(call.screen, agents, accept) if linting else _list(call.screen, agents)


def _list(screen: Screen, agents: list[AnyAgent]) -> int:
    found = [
        clauses(tool.contract, redacted=tool.spec.redact, claims=tool.claims, where=tool.where)
        for tool in gather_tools(agents, ()).values()
    ]
    found.sort(key=lambda one: (_ORDER.index(one.danger), one.tool))
    if screen.wrote_json({"tools": found}):
        return DONE
    if not found:
        screen.line("These agents see no tools.")
    for one in found:
        danger = "no danger" if one.danger == "none" else f"{one.danger} danger"
        screen.line((one.tool, "bold"), f"  {one.effect}  ", (danger, _STYLES[one.danger]))
        rows = [(phrase("  +"), phrase(text)) for text in one.promises]
        rows += [(phrase(("  !", "bold red")), phrase(text)) for text in one.dangers]
        rows.append((phrase("  ?"), phrase(f"after an attempt that may have landed, {one.after_doubt}")))
        screen.show(grid(rows, (3,)))
        screen.line("")
    return DONE


def _lint(screen: Screen, agents: list[AnyAgent], accept: tuple[str, ...]) -> int:
    every = lint(agents)
    _check_accepted(every, accept)
    found = [one for one in every if not {one.rule, f"{one.rule}:{one.subject}"} & set(accept)]
    counts = {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES}
    status = FAILED if counts["danger"] or counts["warning"] else DONE
    if screen.wrote_json({"findings": found, "counts": counts, "accepted": len(every) - len(found)}):
        return status
    for one in found:
        path, _, line = one.where.rpartition(":")
        place = f"{shown_path(Path(path))}:{line}" if path else one.where
        screen.line((one.subject, "bold"), f"  {one.rule}  ", (one.severity, _SEVERE[one.severity]))
        rows = [
            (phrase("  cannot survive"), phrase(one.cannot_survive)),
            (phrase("  add"), phrase(one.add)),
            (phrase("  at"), phrase((place, "dim"))),
        ]
        screen.show(grid(rows, (16,)))
        screen.line("")
    summary = ", ".join(count(number, severity) for severity, number in counts.items() if number)
    accepted = f" ({len(every) - len(found)} accepted)" if len(every) > len(found) else ""
    screen.line((summary or "Nothing found: every effect can be settled by code.", "bold"), accepted)
    return status


def _check_accepted(found: list[LintFinding], accept: tuple[str, ...]) -> None:
    """Check that each accepted finding exists: an obsolete exception hides the next mistake."""
    there = {name for one in found for name in (one.rule, f"{one.rule}:{one.subject}")}
    if idle := [name for name in accept if name not in there]:
        raise UsageError(
            f"--accept {idle[0]}: this finding does not exist",
            known=f"findings: {', '.join(sorted(name for name in there if ':' in name)) or 'none'}",
            next_step="drop it",
        )
