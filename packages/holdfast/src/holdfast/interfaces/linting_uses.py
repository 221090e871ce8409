"""What code must not reach: clients that send again by themselves, and for agents the clock, chance and the network.

One rule is one row, and so is each client that is known to send again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.interfaces.sources import Seen

Severity = Literal["danger", "warning", "note"]


@dataclass(frozen=True)
class UseRule:
    """One row about what a source uses: which names, and what comes of it. The texts may name {use}."""

    name: str
    severity: Severity
    applies: Callable[[Seen], bool]
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
# No setting: whatever it is given, it is there to send again. No value: whoever configures it has thought of it.
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


def retries_by_itself(use: Seen) -> bool:
    """Whether this use makes a client that sends again by itself."""
    if (switch := MAY_RETRY.get(use.name)) is not None:
        return use.called and switch in use.given and use.settings.get(switch, 1) not in (0, False)
    if use.name not in RETRYING:
        return False
    setting, off = RETRYING[use.name]
    if not setting:
        return True
    if not use.called:
        return False
    first = use.settings.get("0") if use.name.endswith("Retry") else None  # Retry(0): its total stands first
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
    """Whether a dotted name is one of these modules, or is in one of them."""
    return any(f"{name}.".startswith(f"{module}.") for module in modules)
