"""`tools --lint`: each rule is met by a tool that breaks it, and not by one that follows it."""

import re

import pytest

from beforehand.inspect.lint import AGENT_RULES, INNER_RETRIES, RULES
from tests.cli.lab import Lab
from tests.tidy.tree import ROOT

HEAD = """\
import random
import secrets
import subprocess
import time
from datetime import datetime, timedelta

from beforehand import (
    Deferred, DidNotHappen, FreeText, Key, Natural, Once, Operation, Pending, Run, Verdict, agent, current_operation, tool
)

TEN = timedelta(seconds=10)
YEAR = timedelta(days=365)
"""
VERIFY = """
@send.verify(SETTINGS)
async def there(operation: Operation[None]) -> Verdict[None]:
    return DidNotHappen()
"""
OBSERVE = """
@send.observe
async def before(operation: Operation[None]) -> int:
    return 1
"""
DESK = """
@agent(run_id="r-{given}")
async def desk(run: Run, given: str) -> None:
    await send(given)
"""


def plain(clauses: str, body: str = "print(current_operation().key, to)", after: str = "", agent: str = DESK) -> str:
    return f"{HEAD}\n@tool({clauses})\ndef send(to: str) -> None:\n    {body}\n{after}\n{agent}"


def desk(line: str, more: str = "") -> str:
    return f"{HEAD}\n{more}\n@agent(run_id='r-{{given}}')\nasync def desk(run: Run, given: str) -> None:\n    {line}\n"


def follow_up(clauses: str = "", body: str = "current_operation().pending('Antwort')", text: str = "str") -> str:
    return (
        f"{HEAD}\n@tool({clauses})\ndef nachfassen(an: str, beschreibung: {text}) -> None:\n    {body}\n"
        + DESK.replace("send(given)", "nachfassen(given, 'hallo')")
    )


SETTLED = VERIFY.replace("SETTINGS", "settle_window=TEN")
SAFE = "idempotency=Key.forever(), timeout=TEN"
MODEL = DESK.replace("await send(given)", 'await run.call("send", {"to": given})')

# rule, code that breaks it, code that does not
CASES = {
    "plain-write": (plain("timeout=TEN"), plain(SAFE)),
    "key-not-sent": (plain(SAFE, "print(to)"), plain(SAFE)),
    "key-outlived-by-retries": (
        plain("idempotency=Key(ttl=timedelta(minutes=5)), timeout=TEN"), plain("idempotency=Key(ttl=YEAR), timeout=TEN")
    ),
    "absence-never-believed": (
        plain("timeout=TEN", after=VERIFY.replace("SETTINGS", "check_first=True")), plain("timeout=TEN", after=SETTLED)
    ),
    "proof-by-likeness": (
        plain(SAFE, after=SETTLED), plain(SAFE, after=SETTLED.replace("return DidN", "print(operation.marker)\n    return DidN"))
    ),
    "repeat-overwrites": (
        plain("idempotency=Natural(), timeout=TEN"), plain("idempotency=Natural(), timeout=TEN", after=OBSERVE)
    ),
    "repeated-by-a-model": (plain(SAFE, agent=MODEL), plain(f'{SAFE}, once=Once("to")', agent=MODEL)),
    "subject-undeclared": (follow_up(), follow_up(text="FreeText")),
    "unknown-raised": (plain(f'{SAFE}, on_unknown="raise"'), plain(SAFE)),
    "refusals-undeclared": (
        plain("timeout=TEN", "import httpx; httpx.post(to)"),
        plain("timeout=TEN, rejections={400}", "import httpx; httpx.post(to)"),
    ),
    "key-outlived": (
        plain("idempotency=Key(ttl=YEAR), timeout=TEN"), plain("idempotency=Key(ttl=YEAR), timeout=TEN", after=SETTLED)
    ),
    "default-timeout": (plain("idempotency=Key.forever()"), plain(SAFE)),
    "inner-retries": (
        plain(SAFE, "from requests.adapters import HTTPAdapter; HTTPAdapter(max_retries=3), current_operation()"),
        plain(SAFE, "from requests.adapters import HTTPAdapter; HTTPAdapter(max_retries=0), current_operation()"),
    ),
    "bare-clock": (desk("print(datetime.now())"), desk("print(await run.now())")),
    "bare-chance": (desk("print(random.random(), secrets.token_hex())"), desk("print(await run.random())")),
    "bare-sleep": (desk("time.sleep(1)"), desk("await run.sleep(TEN)")),
    "effect-outside-a-tool": (desk("subprocess.run(['true'])"), desk("print(given)")),
}  # fmt: skip


def rules_of(beforehand: Lab, code: str) -> list[str]:
    name = f"case_{len(list(beforehand.directory.glob('case_*.py')))}.py"  # a module that is loaded stays as it is
    beforehand.write(name, code)
    return [one["rule"] for one in beforehand("tools", "--lint", "--json", f"{name}:desk").json["findings"]]


def test_every_rule_has_a_case_and_stands_in_the_docs():
    rules = {rule.name for rule in (*RULES, *INNER_RETRIES, *AGENT_RULES)}
    assert rules == set(CASES)
    page = (ROOT / "docs" / "how-to" / "lint-your-tools.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == rules


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_met(beforehand: Lab, rule: str):
    assert rule in rules_of(beforehand, CASES[rule][0])


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_not_met_by_what_follows_it(beforehand: Lab, rule: str):
    assert rule not in rules_of(beforehand, CASES[rule][1])


@pytest.mark.parametrize(
    ("client", "quiet"),
    [
        ("import openai; openai.OpenAI()", "import openai; openai.OpenAI(max_retries=0)"),
        ("import anthropic; anthropic.AsyncAnthropic(max_retries=2)", "import anthropic; x: anthropic.Anthropic"),
        ("from urllib3.util import Retry; Retry(3)", "from urllib3.util import Retry; Retry(0)"),
        ("import urllib3; urllib3.PoolManager()", "import urllib3; urllib3.PoolManager(retries=False)"),
        ("import boto3; boto3.client('sqs')", "import boto3; boto3.client('sqs', config=to)"),
        ("from botocore.config import Config; Config(retries={'max_attempts': 3})", "import botocore.config"),
        ("from tenacity import retry; retry(print)", "import tenacity"),
    ],
)
def test_clients_that_send_again_by_themselves(beforehand: Lab, client: str, quiet: str):
    """The tool is never called, so none of these libraries has to be there."""
    assert "inner-retries" in rules_of(beforehand, plain(SAFE, client))
    assert "inner-retries" not in rules_of(beforehand, plain(SAFE, quiet))


def test_a_client_made_beside_the_tool_and_a_helper_are_followed(beforehand: Lab):
    made = (
        "class openai:\n    OpenAI = print\nimport openai as ai\nclient = ai.OpenAI()\ndef through(x): client.send(x)\n"
    )
    beforehand.write("openai.py", "OpenAI = print\n")
    code = plain(SAFE, "through(to); current_operation()").replace("TEN =", f"{made}\nTEN =")
    assert rules_of(beforehand, code) == ["inner-retries"]


def test_helpers_of_the_agent_are_followed_and_its_decisions_are_not(beforehand: Lab):
    helper = "def stamp() -> str:\n    return str(datetime.now())\n"
    assert rules_of(beforehand, desk("stamp()", helper)) == ["bare-clock"]
    decided = "async def stamp() -> str:\n    return str(datetime.now())\n"
    assert rules_of(beforehand, desk("await run.decide(stamp)", decided)) == []


def test_reads_are_left_alone(beforehand: Lab):
    assert rules_of(beforehand, plain('effect="read"', "import openai; openai.OpenAI()")) == []


def test_it_reads_well_and_tells_by_its_status(beforehand: Lab):
    said = beforehand("tools", "--lint", "desk.py:desk")
    assert said.status == 1
    assert said.lines[0] == "restock  plain-write  danger"
    assert "its outcome is unknown" in said.words
    assert said.lines[-1] == "1 danger, 3 notes"
    assert max(map(len, said.lines)) <= 80


def test_what_is_accepted_is_not_reported(beforehand: Lab):
    said = beforehand("tools", "--lint", "desk.py:desk", "--accept", "plain-write:restock", "--json")
    assert said.status == 0, "notes alone are no failure"
    assert said.json["counts"] == {"danger": 0, "warning": 0, "note": 3}
    assert said.json["accepted"] == 1


def test_an_idle_exception_is_refused(beforehand: Lab):
    said = beforehand("tools", "--lint", "desk.py:desk", "--accept", "plain-write:refund")
    assert said.status == 2
    assert "plain-write:restock" in said.err
    assert beforehand("tools", "desk.py:desk", "--accept", "plain-write").status == 2


def test_a_clean_agent(beforehand: Lab):
    beforehand.write("case.py", CASES["default-timeout"][1])
    said = beforehand("tools", "--lint", "case.py:desk")
    assert (said.status, said.lines) == (0, ["Nothing found: every effect can be settled by code."])


@pytest.mark.parametrize(
    ("code", "met"),
    [
        (follow_up('pending=Pending("Antwort")', "pass"), True),
        (follow_up('pending=Pending("Antwort", about="an")', "pass"), False),
        (follow_up(body="raise Deferred('angenommen')"), True),
        (follow_up(body="current_operation().pending('Antwort', about='an')"), False),
        (follow_up("claim='an', idempotency=Key.forever()"), False),
        (follow_up("once=Once('an')"), False),
        (follow_up("title='Mail an {an}: {beschreibung}'"), False),
        (follow_up("title='Mail an {an}: {beschreibung}'").replace("beschreibung", "subject"), True),  # not by its name
        (follow_up(body="pass"), False),
        (plain(SAFE, "current_operation().key, current_operation().pending('Antwort')"), False),  # one parameter
    ],
)
def test_a_tool_that_leaves_something_pending_says_what_a_call_is_about(beforehand: Lab, code: str, met: bool):
    assert ("subject-undeclared" in rules_of(beforehand, code)) == met


def test_the_finding_names_what_counts_as_the_subject(beforehand: Lab):
    beforehand.write("desk.py", follow_up().replace("beschreibung", "text"))
    findings = beforehand("tools", "--lint", "--json", "desk.py:desk").json["findings"]
    (found,) = [one for one in findings if one["rule"] == "subject-undeclared"]
    assert found["cannot_survive"].endswith("if it differs in an")
