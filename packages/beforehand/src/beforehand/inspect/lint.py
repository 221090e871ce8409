"""Lint rules: contracts that a crash or an unclear answer can break, and code that must not be reached.

One rule is one row. Most rules look at the contract alone. A few read the source: clients that send again by
themselves, and for agents the clock, chance and the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from beforehand.agent.agent import Agent, gather_tools
from beforehand.agent.tool import Tool
from beforehand.inspect.contracts import span
from beforehand.inspect.source_code import Source, SourceUse, source_of
from beforehand.model.contract import Contract
from beforehand.policies import milliseconds

AnyAgent = Agent[Any, Any]
SEVERITIES: Final[tuple[Severity, ...]] = ("danger", "warning", "note")


class LintFinding(msgspec.Struct, frozen=True):
    """One danger to a tool, or to an agent's code. `where` is a file and a line."""

    subject: str
    rule: str
    severity: Severity
    cannot_survive: str
    add: str
    where: str


@dataclass(frozen=True)
class ToolFacts:
    """Facts about one tool. `model` says that a model may choose it.

    `guessed` are the parameters that count as the subject of a call because nothing declares it. `source` and that of
    its `verifier` are None where there is none, or it cannot be read.
    """

    contract: Contract
    claims: bool
    model: bool
    guessed: tuple[str, ...]
    source: Source | None
    verifier: Source | None

    @property
    def plain(self) -> bool:
        """True if code has no means to find out what happened."""
        return self.contract.idempotency is None and not self.contract.verifies

    @property
    def leaves_pending(self) -> bool:
        """True if a success may leave something pending, and does not name the subject itself."""
        if self.contract.pending is not None or self.source is None:
            return self.contract.pending is not None
        names = self.source.names
        return "Deferred" in names or (
            {"current_operation", "pending"} <= names and "about" not in self.source.keywords
        )

    @property
    def settles(self) -> bool:
        """True if reading it back can prove both that it happened and that it did not."""
        return self.contract.verifies and self.contract.settle_ms is not None


@dataclass(frozen=True)
class LintRule:
    """One row: when it applies, the danger, and what to add.

    The texts may name {tool}, {guessed}, {ttl}, {within}, {tries} and {timeout} of the contract.
    """

    name: str
    severity: Severity
    applies: Callable[[ToolFacts], bool]
    cannot_survive: str
    add: str


DEFAULT_TIMEOUT_MS: Final = Contract("?").timeout_ms

RULES: Final[tuple[LintRule, ...]] = (
    LintRule(
        "plain-write", "danger", lambda tool: tool.plain,
        "a crash or a lost answer after it was sent: its outcome is unknown, and a person is asked",
        "idempotency=Key(ttl=...) if the service takes a key, Natural() if repeating changes nothing, "
        "else @{tool}.verify(settle_window=...)",
    ),
    LintRule(
        "key-not-sent", "warning",
        lambda tool: tool.contract.key is not None and tool.source is not None
        and not tool.source.names & {"current_operation", "key", "marker"},
        "any retry, if its key is never sent: its file does not read it, and then nothing notices a second effect",
        "send current_operation().key with the request",
    ),
    LintRule(
        "key-outlived-by-retries", "danger",
        lambda tool: not tool.settles and _key_ms(tool) < milliseconds(tool.contract.retries.elapsed),
        "an outage of more than {ttl}: it may be tried for {tries}, and by then its key is forgotten",
        "retry=Retry(elapsed=...) shorter than the key's life, or @{tool}.verify(settle_window=...)",
    ),
    LintRule(
        "absence-never-believed", "warning",
        lambda tool: tool.contract.verifies and not tool.settles and tool.contract.idempotency is None,
        "a crash before the effect landed: that nothing is found is never believed, so a person is asked",
        "@{tool}.verify(settle_window=...): how long after a call its effect may still become visible",
    ),
    LintRule(
        "proof-by-likeness", "warning",
        lambda tool: tool.verifier is not None and tool.contract.natural is None
        and not tool.verifier.names & {"key", "marker", "id", "expected"},
        "an earlier effect of yours that becomes visible late: its verifier does not ask whose effect it sees",
        "plant current_operation().marker (or .key) with the effect, and look for operation.marker",
    ),
    LintRule(
        "repeat-overwrites", "warning",
        lambda tool: tool.contract.natural is not None and not tool.contract.observes,
        "a change by others in between: a repeat within {within} overwrites it",
        "@{tool}.observe: read the preconditions, so that a changed world is noticed",
    ),
    LintRule(
        "repeated-by-a-model", "warning",
        lambda tool: tool.model and tool.contract.once is None and not tool.claims,
        "a model that asks again for what was done already: that is a new effect",
        "once=Once(...) with what names the effect (reworded=True: whatever the rest), or claim=... across all runs",
    ),
    LintRule(
        "subject-undeclared", "warning", lambda tool: bool(tool.guessed) and tool.leaves_pending,
        "a second call about the same thing while something is pending: nothing declares which parameters identify "
        "that thing, so the call is sent if it differs in {guessed}",
        "pending=Pending(about=...), claim=..., once=... or title=... with the parameters that identify it, or "
        "the annotation FreeText for those that only word it",
    ),
    LintRule(
        "unknown-raised", "warning", lambda tool: tool.contract.on_unknown == "raise",
        "an unknown outcome: code that catches the error may continue as if nothing had happened",
        'on_unknown="suspend" (the default) lets the run wait for evidence or a person',
    ),
    LintRule(
        "refusals-undeclared", "note",
        lambda tool: tool.plain and not tool.contract.rejections and _speaks_http(tool.source),
        "a plain refusal: an HTTP status that is not declared counts as an effect that may have landed",
        "rejections={{400, 404, 422}} and not_sent={{429, 503}}, as this service means them",
    ),
    LintRule(
        "key-outlived", "note",
        lambda tool: tool.contract.key is not None and tool.contract.key.ttl is not None
        and not tool.settles,
        "being down for more than {ttl}: the key is forgotten, and a person is asked",
        "@{tool}.verify(settle_window=...) to find out by itself, even then",
    ),
    LintRule(
        "default-timeout", "note", lambda tool: tool.contract.timeout_ms == DEFAULT_TIMEOUT_MS,
        "nothing is lost, but a call that hangs is waited for {timeout}, the default",
        "timeout=...: how long this service may take at most",
    ),
)  # fmt: skip


def lint(agents: Iterable[AnyAgent]) -> list[LintFinding]:
    """All findings about these agents and their tools, the worst first."""
    held = list(agents)
    found = [finding for agent in held for finding in _used(agent.name, source_of(agent.__wrapped__), AGENT_RULES)]
    chosen = {tool.name for agent in held if _lets_a_model_choose(agent) for tool in agent.tools}
    for tool in gather_tools(held, ()).values():
        found += _lint_tool(tool, model=tool.name in chosen)
    return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.subject, one.rule, one.where))


def _lint_tool(tool: Tool[Any, Any], *, model: bool) -> list[LintFinding]:
    if tool.contract.effect == "read":
        return []  # a read changes nothing: whatever repeats it does no harm
    verify = tool.handlers.get("verify")
    verifier = source_of(verify.function) if verify is not None else None
    guessed = tool.subject.names if tool.subject.guessed else ()
    facts = ToolFacts(tool.contract, tool.claims, model, guessed, source_of(tool.__wrapped__), verifier)
    words = _words(facts)
    found = [
        LintFinding(tool.name, rule.name, rule.severity, rule.cannot_survive.format(**words), rule.add.format(**words),
                tool.where)
        for rule in RULES
        if rule.applies(facts)
    ]  # fmt: skip
    return found + _used(tool.name, facts.source, INNER_RETRIES)


def _used(subject: str, source: Source | None, rules: Iterable[UseRule]) -> list[LintFinding]:
    found: dict[tuple[str, str, int], LintFinding] = {}
    for rule in rules:
        for use in source.seen if source is not None else ():
            if source is not None and rule.applies(use):
                text = rule.cannot_survive.format(use=use.name)
                finding = LintFinding(subject, rule.name, rule.severity, text, rule.add, f"{source.file}:{use.line}")
                found.setdefault((rule.name, use.name, use.line), finding)
    return list(found.values())


def _words(facts: ToolFacts) -> dict[str, str]:
    contract = facts.contract
    key, natural = contract.key, contract.natural
    return {
        "tool": contract.tool,
        "guessed": " or ".join(facts.guessed),
        "ttl": span(key.ttl) if key is not None and key.ttl is not None else "",
        "within": span(natural.within) if natural is not None else "",
        "tries": span(contract.retries.elapsed),
        "timeout": span(timedelta(milliseconds=contract.timeout_ms)),
    }


def _key_ms(facts: ToolFacts) -> float:
    """The time for which a key is reliable: a retry has to arrive within it."""
    key = facts.contract.key
    if key is None or key.ttl is None:
        return float("inf")
    return milliseconds(key.ttl) - facts.contract.timeout_ms


def _speaks_http(source: Source | None) -> bool:
    return source is not None and any(under(use.name, HTTP) for use in source.seen)


def _lets_a_model_choose(agent: AnyAgent) -> bool:
    """True if the agent's code asks for tools by name (`run.call`), or shows a model their schemas."""
    source = source_of(agent.__wrapped__)
    return source is not None and bool(source.names & {"call", "schemas"})


Severity = Literal["danger", "warning", "note"]


@dataclass(frozen=True)
class UseRule:
    """One row about a source: the names it uses, and their danger. The texts may name {use}."""

    name: str
    severity: Severity
    applies: Callable[[SourceUse], bool]
    cannot_survive: str
    add: str


CLOCK: Final = frozenset({
    "time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "datetime.datetime.now",
    "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
})  # fmt: skip
CHANCE: Final = frozenset({"os.urandom", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"})
CHANCE_MODULES: Final = ("random", "secrets", "numpy.random")
SLEEP: Final = frozenset({"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"})
HTTP: Final = ("requests", "httpx", "httpx2", "aiohttp", "urllib3", "urllib.request")
OUTSIDE: Final = (*HTTP, "smtplib", "aiosmtplib", "subprocess", "boto3", "openai", "anthropic")

# Clients that send again unless told not to: the name, the setting, and its values that switch it off.
# No setting: whatever it is given, it is there to send again. No value: configuring it is a deliberate choice.
RETRYING: Final[dict[str, tuple[str, tuple[object, ...]]]] = {
    "aiohttp_retry.RetryClient": ("", ()),
    "anthropic.Anthropic": ("max_retries", (0,)),
    "anthropic.AsyncAnthropic": ("max_retries", (0,)),
    "backoff.on_exception": ("", ()),
    "backoff.on_predicate": ("", ()),
    "boto3.client": ("config", ()),
    "boto3.resource": ("config", ()),
    "openai.AsyncAzureOpenAI": ("max_retries", (0,)),
    "openai.AsyncOpenAI": ("max_retries", (0,)),
    "openai.AzureOpenAI": ("max_retries", (0,)),
    "openai.OpenAI": ("max_retries", (0,)),
    "stamina.retry": ("", ()),
    "stamina.retry_context": ("", ()),
    "tenacity.AsyncRetrying": ("", ()),
    "tenacity.Retrying": ("", ()),
    "tenacity.retry": ("", ()),
    "urllib3.PoolManager": ("retries", (0, False)),
    "urllib3.ProxyManager": ("retries", (0, False)),
    "urllib3.Retry": ("total", (0, False)),
    "urllib3.request": ("retries", (0, False)),
    "urllib3.util.Retry": ("total", (0, False)),
    "urllib3.util.retry.Retry": ("total", (0, False)),
}
# Clients that send again only where they are told to: the name, and the setting that switches it on.
MAY_RETRY: Final = {
    "botocore.config.Config": "retries",
    "requests.adapters.HTTPAdapter": "max_retries",
    "stripe.StripeClient": "max_network_retries",
}


def retries_by_itself(use: SourceUse) -> bool:
    """True if this use makes a client that sends again by itself."""
    if (switch := MAY_RETRY.get(use.name)) is not None:
        return use.called and switch in use.given and use.settings.get(switch, 1) not in (0, False)
    if use.name not in RETRYING:
        return False
    setting, off = RETRYING[use.name]
    if not setting:
        return True
    if not use.called:
        return False
    first = use.settings.get("0") if use.name.endswith("Retry") else None  # Retry(0): its total is the first argument
    return use.settings.get(setting, first) not in off if off else setting not in use.given


INNER_RETRIES: Final[tuple[UseRule, ...]] = (
    UseRule(
        "inner-retries", "danger", retries_by_itself,
        "a lost answer: {use} sends again by itself, where no record, deadline or verifier can stop it",
        "switch its retries off (max_retries=0, retries=False) and leave them to retry=",
    ),
)  # fmt: skip

AGENT_RULES: Final[tuple[UseRule, ...]] = (
    UseRule(
        "bare-clock", "danger", lambda use: use.called and use.name in CLOCK,
        "being resumed: {use} answers differently then, and the run diverges from its record",
        "await run.now()",
    ),
    UseRule(
        "bare-chance", "danger", lambda use: use.called and (use.name in CHANCE or under(use.name, CHANCE_MODULES)),
        "being resumed: {use} answers differently then, and the run diverges from its record",
        "await run.random() or await run.uuid()",
    ),
    UseRule(
        "bare-sleep", "warning", lambda use: use.called and use.name in SLEEP,
        "a crash during {use}: the wait begins again, and meanwhile a process is held",
        "await run.sleep(timedelta(...))",
    ),
    UseRule(
        "effect-outside-a-tool", "danger", lambda use: use.called and under(use.name, OUTSIDE),
        "a crash anywhere: {use} is not recorded, so every resume does it again",
        'move it into a function with @tool, or @tool(effect="read")',
    ),
)  # fmt: skip


def under(name: str, modules: Iterable[str]) -> bool:
    """True if a dotted name is one of these modules, or is in one of them."""
    return any(f"{name}.".startswith(f"{module}.") for module in modules)
