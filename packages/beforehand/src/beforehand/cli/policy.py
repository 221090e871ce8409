"""`beforehand policy`: show, check, test or backtest an escalation policy before it judges operations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from beforehand.cli.common import CommandCall, command
from beforehand.cli.config import policy_source
from beforehand.cli.exit_status import DONE, FAILED, USAGE
from beforehand.cli.screen import Screen, grid, phrase
from beforehand.errors import UsageError
from beforehand.inspect.text import count, duration
from beforehand.model.policy import Policy, Rule
from beforehand.people.policy.archive import cases_in, kept_policy, kept_versions, tried
from beforehand.people.policy.judge import PolicyError
from beforehand.people.policy.policy_files import load_policy
from beforehand.policies import milliseconds
from beforehand.testing.backtest import Backtest, backtest_policy

_FILES: Final = {"show": 1, "check": 1, "test": 2, "dry-run": 1}
_LISTED: Final = 20


@command(
    "policy",
    examples=(
        "beforehand policy show",
        "beforehand policy show --version refunds@1f0c9a2b",
        "beforehand policy check rules.yaml",
        "beforehand policy test cases.yaml rules.yaml",
        "beforehand policy dry-run rules.yaml",
    ),
)
@click.argument("what", type=click.Choice(tuple(_FILES)))
@click.argument("names", nargs=-1, metavar="[CASES] [FILE]")
@click.option("--version", default="", metavar="V", help="With show: this version, as it read when it was used.")
async def policy(call: CommandCall, what: str, names: tuple[str, ...], *, version: str) -> int:
    """Show, check, test or dry-run the escalation policy in FILE, or this project's.

    FILE is a policy file, or `installed:NAME` for the policy of an installed distribution.
    `show` explains each rule; with --version, those of a version that was used in this
    journal. `check` lists errors only. `test` applies the policy to the CASES of a YAML
    file; the exit status is 1 if a ruling differs. `dry-run` applies it to every call in
    the journal, and reports how often people would have been asked and which of their
    overrides it would have missed. Nothing is recorded.
    """
    if len(names) > _FILES[what]:
        raise UsageError(f"policy {what} takes no {names[-1]!r}")
    if version:
        if what != "show" or names:
            raise UsageError("--version goes with show, and takes no file")
        await _show_kept(call, version)
        return DONE
    if what == "test":
        return _test(call.screen, names)
    source = named_policy(names[0] if names else None)
    if what == "check":
        return _check(call.screen, source)
    if what == "dry-run":
        async with call.reader() as reader:
            _tell(call.screen, await backtest_policy(reader, load_policy(source)))
    else:
        judge = load_policy(source)
        _show(call.screen, judge.version, judge.policy)
    return DONE


def named_policy(named: str | None) -> str:
    """The source of the policy that is named, or that of this project. Raises `UsageError` where there is neither."""
    found = policy_source(named)
    if found is None:
        raise UsageError(
            "which policy?", known="none is named, and this project has none",
            next_step="name FILE or installed:NAME, or set BEFOREHAND_POLICY or "
            "[tool.beforehand] policy in pyproject.toml",
        )  # fmt: skip
    return found


# --- show and check -----------------------------------------------------------------------------------------------


def _check(screen: Screen, source: str) -> int:
    faults: tuple[str, ...] = ()
    version = ""
    try:
        version = load_policy(source).version
    except PolicyError as error:
        faults = error.faults
    if screen.as_json:
        screen.document({"file": source, "version": version, "faults": faults})
    elif faults:
        for fault in faults:
            screen.line((f"{source}: {fault}", "red"))
        screen.line(f"{count(len(faults), 'fault')}: an app refuses this policy.")
    else:
        screen.line(f"{source}: no faults were found. Its version is ", (version, "bold"), ".")
    return USAGE if faults else DONE


async def _show_kept(call: CommandCall, version: str) -> None:
    """Show a version as it was in force in this journal. Raises `UsageError` where the journal has not kept it."""
    async with call.reader() as reader:
        kept, versions = await kept_policy(reader, version), await kept_versions(reader)
    if kept is None:
        known = ", ".join(versions) or "none"
        raise UsageError(f"this journal has no policy {version}", known=f"the versions that ruled here: {known}")
    _show(call.screen, version, kept)


def _show(screen: Screen, version: str, rules: Policy) -> None:
    if screen.wrote_json({"version": version, "policy": msgspec.to_builtins(rules)}):
        return
    screen.line((version, "bold"))
    for line in _about(rules):
        screen.line((f"  {line}", "dim"))
    screen.line("")
    for number, rule in enumerate(rules.rules, start=1):
        screen.line((f"{number}. {rule.name}", "bold"))
        screen.line(f"   if   {rule.when}")
        screen.line("   then ", (then_text(rule), "cyan"))
    screen.line((f"{len(rules.rules) + 1}. else", "bold"))
    screen.line("   then ", (rules.default, "cyan"))
    screen.line("")
    screen.line("A call that cannot be judged is asked about. A tool's own gate always asks.")


def _about(rules: Policy) -> list[str]:
    lines = [f"a call of {tool} is worth {text}" for tool, text in rules.amounts.items()]
    lines += [f"a call of {tool} concerns {text}" for tool, text in rules.subjects.items()]
    lines += [f"history goes back {duration(milliseconds(rules.remembers))}"] if rules.subjects else []
    return lines + ([f"reviewers are busy if {rules.busy}"] if rules.busy else [])


# --- test ---------------------------------------------------------------------------------------------------------


def _test(screen: Screen, names: tuple[str, ...]) -> int:
    cases, *rest = names or ("",)
    if not cases:
        raise UsageError("which cases?", next_step="beforehand policy test cases.yaml [FILE]")
    judge = load_policy(named_policy(rest[0] if rest else None))
    found = [tried(judge, case) for case in cases_in(Path(cases))]
    missed = sum(not one.passed for one in found)
    if screen.wrote_json({"version": judge.version, "cases": found, "missed": missed}):
        return FAILED if missed else DONE
    for one in found:
        mark = screen.mark("ok" if one.passed else "failed")
        verdict = f"{one.word} by {one.rule!r}"
        screen.show(grid([(mark, phrase((one.name, "bold")), phrase(verdict))], (1, 28)))
        if not one.passed:
            screen.line((f"   expected {one.expect}", "red"))
        if one.why:
            screen.line((f"   it could not be judged: {one.why}", "yellow"))
    screen.line(f"{judge.version}: {count(len(found), 'case')}, {missed or 'none'} missed.")
    return FAILED if missed else DONE


# --- dry-run ------------------------------------------------------------------------------------------------------


def _tell(screen: Screen, found: Backtest) -> None:
    if screen.wrote_json(found):
        return
    screen.line((found.version, "bold"), f"  over {count(found.operations, 'write')} of {count(found.runs, 'run')}")
    if not found.operations:
        return
    rows = [
        (phrase(f"  {rule}"), phrase(", ".join(f"{word} {number}" for word, number in sorted(words.items()))))
        for rule, words in found.rules.items()
    ]
    screen.show(grid(rows))
    screen.line("")
    missed = count(len(found.missed), "override")
    screen.line(
        f"It would have asked {count(found.asks_now, 'time')} instead of {found.asked_then},"
        f" refused {found.refuses_now}, and missed {missed} of {found.overrides}."
    )
    for one in found.missed[:_LISTED]:
        screen.line(
            (f"  {one.operation}", "yellow"), f"  {one.override} by {one.by}, and it says {one.word}: {one.rule}"
        )
    if len(found.missed) > _LISTED:
        screen.line(f"  ... and {len(found.missed) - _LISTED} more: --json has all")
    if found.unjudged:
        what = "what was recorded" if found.unjudged == 1 else "what was recorded of them"
        screen.line((f"{found.unjudged} could not be judged by {what}, and count as asked.", "dim"))


_EXPIRY: Final = {"refuse": "then it is refused", "hold": "then it goes on waiting"}


def then_text(rule: Rule) -> str:
    """The ruling, where its condition holds."""
    share = f"{rule.then} {rule.rate:.0%}" if rule.then == "sample" else rule.then
    busy = f", {rule.busy_rate:.0%} while reviewers are busy" if rule.busy_rate is not None else ""
    people = f" {rule.people} people" if rule.people > 1 else ""
    queue = f" in {rule.queue}" if rule.queue else ""
    within = "" if rule.within is None else f" within {duration(milliseconds(rule.within))}"
    after = f", then asks in {rule.escalates_to}" if rule.escalates_to else f", {_EXPIRY[rule.on_expiry]}"
    shadow = f"; {rule.shadow:.0%} of what is sent is reviewed afterwards" if rule.shadow else ""
    ends = after if within or rule.on_expiry != "refuse" else ""
    return f"{share}{busy}{people}{queue}{within}{ends}{shadow}"
