"""The API against its own description: calls that are made from it, valid and not, to a real server.

Half of them name items that are really there, with the digest that is really shown, so that answers get through to the
journal. Whatever comes, the server answers in the form that it describes, and never with a 500.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth

from beforehand_console.auth.tokens import TokenNote
from beforehand_console.web.openapi import description
from tests.e2e.desk import AGENTS, POLICY, vouchers
from tests.e2e.served import Served

EXAMPLES = 25
PEOPLE = ("ann", "ben", "cleo", "dora")
NEVER_OURS = "bh_" + "0" * 64
QUIET = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(Path(tmp_path_factory.mktemp("api")) / "desk.db", AGENTS, POLICY) as served:
        for name in PEOPLE:
            for agent in AGENTS:
                if agent is not vouchers:
                    served.begin(agent, name)
            served.do(lambda app, name=name: app.run(vouchers, name))  # people look at it afterwards
        served.person("bot")
        yield served


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    async def mint(app: Any) -> str:
        note = TokenNote("add", "root", "bot", ends_ms=served.clock.wall_ms() + 3_600_000)
        return (await served.authenticator.tokens.add(note, app.engine.environment.rng))[0]

    return served.do(mint)


@cache
def described() -> Any:
    return schemathesis.openapi.from_dict(description())


def operations() -> list[Any]:
    return [found.ok() for found in described().get_all_operations()]


def test_the_description_is_valid_openapi():
    described().validate()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_calls_are_answered_as_described(operation: Any, mode: GenerationMode, served: Served, token: str):
    headers = {"authorization": f"Bearer {token}"}
    real = [*items(served, headers), ("nobody/here", "d1")]

    statuses: set[int] = set()

    @QUIET
    @given(case=operation.as_strategy(generation_mode=mode), meant=st.booleans(), which=st.sampled_from(real))
    def call(case: Case, meant: bool, which: tuple[str, str]) -> None:
        if meant and mode is GenerationMode.POSITIVE:
            mean(case, *which)
        # The check of schemathesis sends the given headers again; the test below asks without a token.
        answered = case.call_and_validate(
            base_url=served.address, headers=headers, timeout=20, excluded_checks=[ignored_auth]
        )
        statuses.add(answered.status_code)

    call()
    assert max(statuses) < 500
    assert 200 in statuses or mode is GenerationMode.NEGATIVE, "some calls got through"


@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
@pytest.mark.parametrize("shown", [{}, {"authorization": f"Bearer {NEVER_OURS}"}, {"cookie": "__Host-beforehand=1"}])
def test_nobody_is_answered_without_a_token(operation: Any, shown: dict[str, str], served: Served):
    path = operation.path.replace("{item}", "mail-ann/send_mail%231").replace("{run}", "mail-ann")
    own = {"origin": served.address, "content-type": "application/json"}
    with httpx2.Client(base_url=served.address, trust_env=False) as client:
        refused = client.request(operation.method, path, headers=own | shown)
    assert (refused.status_code, "mail" in refused.text) == (401, False)


def mean(case: Case, item: str, shown: str) -> None:
    """Let the call be about something that is there."""
    for name, value in (("item", quote(item)), ("run", item.partition("/")[0])):
        if name in case.path_parameters:
            case.path_parameters[name] = value
    body = case.body if isinstance(case.body, dict) else {}
    if "agent" in body:
        body.update(agent="mails", input="eve", queue="default", tenant="", priority=0)
        body.pop("key", None)
    elif "word" in body:
        person = item.partition("/")[0].rpartition("-")[2]
        body.update(operation=f"voucher-{person}/coupon#1")
    elif "items" in body:
        body["items"] = [{"item": item, "shown": shown}]
    elif "shown" in body:
        body.update(item=item, shown=shown)


def items(served: Served, headers: dict[str, str]) -> list[tuple[str, str]]:
    """What waits now, with the digests of it."""
    with httpx2.Client(base_url=served.address, headers=headers, trust_env=False) as client:
        names = [one["item"] for one in client.get("/api/v1/items").json()["items"]]
        dossiers = [client.get(f"/api/v1/items/{name.replace('#', '%23')}").json() for name in names]
        return [(one["item"], one["digest"]) for one in dossiers]
