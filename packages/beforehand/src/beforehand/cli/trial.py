"""`trial`: how often an agent reaches the end state that its caller wants, with and without faults."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from beforehand.cli.apps import load_agent, load_function
from beforehand.cli.common import CommandCall, command
from beforehand.cli.exit_status import DONE, FAILED, INTERRUPTED
from beforehand.cli.inputs import lines_of
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.errors import BeforehandError, UsageError
from beforehand.inspect.text import count, short
from beforehand.model.shell import to_type
from beforehand.testing.trial.faults import KINDS, FaultKind
from beforehand.testing.trial.figures import ARMS, Group, Repeat, alike
from beforehand.testing.trial.page import NAMES, cut_short, page, percent
from beforehand.testing.trial.performing import Wanted, check_parameters
from beforehand.testing.trial.report import Report, TrialPlan, TrialRefused, planned, report, try_all

if TYPE_CHECKING:
    from rich.text import Text

    from beforehand.cli.inputs import AnyAgent

_SHOWN: Final = 12
_WIDTH: Final = 80
_GOES_ON: Final = " \\"


class Options(msgspec.Struct, frozen=True):
    """The options of one call, as they were given."""

    target: str
    inputs: str
    repeat: int
    faults: str
    check: str | None
    before: str | None
    seed: int
    line: int | None


@command(
    "trial",
    examples=(
        "beforehand trial desk.py:desk --inputs cases.jsonl",
        "beforehand trial desk.py:desk --inputs cases.jsonl --check checks.py:ended",
        "beforehand trial desk.py:desk --inputs case.jsonl --faults all --html t.html",
    ),
)
@click.argument("target")
@click.option("--inputs", required=True, metavar="FILE", help="A .jsonl or .csv file (or -): one case per line.")
@click.option("--repeat", default=8, show_default=True, metavar="N", type=click.IntRange(1), help="Runs of each case.")
@click.option(
    "--faults", default="timeouts,crashes", show_default=True, metavar="KINDS",
    help=f"Any of {', '.join(KINDS)}; or all, or none.",
)  # fmt: skip
@click.option("--check", metavar="FILE:NAME", help="Your end-state check; by default the run has to complete.")
@click.option("--before", metavar="FILE:NAME", help="A function to call before each run, to reset your services.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Repeats the same faults and crashes.")
@click.option("--line", metavar="N", type=int, help="Only the case on this line.")
@click.option("--at-least", default=1.0, metavar="P", type=click.FloatRange(0, 1), help="The pass^1 for status 0.")
@click.option("--html", metavar="FILE", help="Write a report with charts, in one file.")
def trial(call: CommandCall, at_least: float, html: str | None, **given: Any) -> int:
    """Run the agent TARGET on each case, again and again, and count how often it passes.

    Each run has a journal of its own in memory and calls your tools for real, so
    give them a sandbox. Faults are put between the agent and its tools: timeouts
    before and after the effect, a 500 after it (errors), late answers and late
    sight for verify (lag), a timeout with the effect later (late), requests that
    arrive twice (duplicates), half an effect or half a reply (partial), and
    crashes at a random boundary with a resume.

    The check is a function that takes any of input, result, run, effects, status
    and reason by name. It passes unless it returns false or a text, or raises.
    """
    options = msgspec.convert(given, Options)
    agent = load_agent(options.target)
    wanted = Wanted(agent, _kinds(options.faults), _loaded(options.check), _loaded(options.before))
    if wanted.check is not None:
        check_parameters(wanted.check)
    plan, refused = _plan(agent, options)
    if html is not None:
        _check_writable(html)
    runs: list[Repeat] = []
    failed = 0
    with call.screen.progress(planned(wanted, plan)) as advance, _once_each(), suppress(KeyboardInterrupt):
        for one in try_all(wanted, plan):
            runs.append(one)
            failed += not one.passed
            advance(f"{failed} failed" if failed else "")
    found = report(wanted, plan, runs, refused, lambda group: _command(options, group))
    if html is not None:
        Path(html).write_text(page(found), encoding="utf-8")
    if not call.screen.wrote_json(found):
        _tell(call.screen, found, html)
    if found.interrupted:
        call.screen.note((cut_short(found), "bold red"))
        return INTERRUPTED
    judged = found.judged
    passed = judged is not None and judged.curve[0] >= at_least
    return DONE if passed and not refused else FAILED


def _kinds(text: str) -> tuple[FaultKind, ...]:
    named = {"all": set[str](KINDS), "none": set[str]()}.get(text, {part.strip() for part in text.split(",")})
    if unknown := sorted(named - set(KINDS)):
        raise UsageError(f"--faults {unknown[0]}: unknown fault", known=f"faults: {', '.join(KINDS)}, all, none")
    return tuple(kind for kind in KINDS if kind in named)


def _loaded(target: str | None) -> Callable[..., Any] | None:
    return None if target is None else load_function(target)


def _plan(agent: AnyAgent, options: Options) -> tuple[TrialPlan, list[TrialRefused]]:
    """The cases by line. A line that does not fit is reported, and the rest still runs."""
    inputs: dict[int, object] = {}
    shown: dict[int, str] = {}
    refused: list[TrialRefused] = []
    for line in lines_of(agent, options.inputs):
        if options.line not in (None, line.number):
            continue
        try:
            if line.problem:
                raise UsageError(line.problem)
            given = agent.parse_input(line.text)
            if agent.template is not None:
                agent.run_id_for(given)  # raises where the input has no such field
            inputs[line.number] = given
            shown[line.number] = line.text.decode("utf-8", "replace").strip()
        except BeforehandError as error:
            refused.append(TrialRefused(line.number, error.message))
    if not inputs and not refused:
        which = f"line {options.line} of {options.inputs}" if options.line is not None else options.inputs
        raise UsageError(f"no case in {which}", next_step="give one JSON value per line")
    return TrialPlan(inputs, shown, options.repeat, options.seed), refused


def _command(options: Options, group: Group) -> str:
    """The command that repeats the first failure of a group."""
    parts = ["trial", options.target, "--inputs", options.inputs, "--line", str(group.line)]
    parts += ["--seed", str(group.seed), "--repeat", "1", "--faults", options.faults]
    for name, value in (("--check", options.check), ("--before", options.before)):
        parts += [name, value] if value else []
    return to_type(*parts)


def _check_writable(name: str) -> None:
    """Check that the output is writable, before the runs. Raises `UsageError`."""
    try:
        Path(name).open("ab").close()
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}", next_step="name another file") from error


@contextmanager
def _once_each() -> Generator[None]:
    """Make remarks of the runtime only once, although many runs would make them."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message, before = alike(record.getMessage()), len(seen)
        seen.add(message)
        return len(seen) > before

    logger = logging.getLogger("beforehand")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


# --- reporting ---------------------------------------------------------------------------------------------------


def _tell(screen: Screen, found: Report, html: str | None) -> None:
    cases = f"{count(found.inputs, 'case')}, {count(found.repeat, 'repeat')} each, seed {found.seed}"
    screen.line((found.agent, "bold"), f"  {cases}; check: {found.check}")
    if found.faults:
        screen.line((f"faults: {', '.join(found.faults)}", "dim"))
    screen.line("")
    ks = _columns(max((len(one.curve) for one in found.arms.values()), default=0))
    rows = [(phrase(("", "dim")), *(phrase((f"pass^{k}", "dim")) for k in ks), phrase(("runs passed", "dim")))]
    for arm in ARMS:
        if (figures := found.arms.get(arm)) is not None:
            cells = [_cell(figures.curve[k - 1]) if k <= len(figures.curve) else phrase("") for k in ks]
            rows.append((phrase(NAMES[arm]), *cells, phrase(f"{figures.passed} of {figures.repeats}")))
    screen.show(grid(rows))
    _tell_failures(screen, found)
    for line in found.refused:
        screen.line((f"line {line.line} does not fit: ", "bold red"), line.problem)
    if html is not None:
        screen.line(("Report: ", "dim"), html)


def _tell_failures(screen: Screen, found: Report) -> None:
    screen.line("")
    for group in found.failures[:_SHOWN]:
        lines = ", ".join(map(str, group.lines[:8])) + (", …" if len(group.lines) > 8 else "")
        screen.line((count(group.count, "run"), "bold red"), f" {NAMES[group.arm]}  ", (f"line {lines}", "dim"))
        rows = [(phrase("| "), phrase(short(group.reason, 400)))]
        if group.faults:
            rows.append((phrase("  "), phrase((f"after {'; '.join(group.faults)}", "dim"))))
        screen.show(grid(rows, (2,)))
        screen.block(folded(f"    again: {group.command}"))
    if len(found.failures) > _SHOWN:
        screen.line(f"... and {len(found.failures) - _SHOWN} more reasons: --json or --html has all of them")


def folded(command: str) -> str:
    """A command in lines that a terminal shows whole, and that a shell takes for one."""
    lines = [""]
    for word in re.findall(r"\s*(?:--\S+\s+)?(?:'[^']*'|\S)+", command):
        if len(lines[-1]) + len(word) > _WIDTH - len(_GOES_ON):
            lines.append(" " * 11 + word.strip())
        else:
            lines[-1] += word
    return f"{_GOES_ON}\n".join(lines)


def _columns(repeat: int) -> list[int]:
    """The values of k to show: all of a few, else powers of two and the last."""
    return (
        list(range(1, repeat + 1)) if repeat <= 5 else sorted({k for k in (1, 2, 4, 8, 16) if k <= repeat} | {repeat})
    )


def _cell(share: float) -> Text:
    return phrase((percent(share), "green" if share == 1 else "yellow" if share >= 0.5 else "bold red"))
