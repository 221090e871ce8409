"""No argument makes the inbox unusable: pages stay small, are drawn off the loop, and say what they leave out."""

import asyncio
import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from beforehand import Run, agent, tool
from beforehand.people.dossier import dossier
from tests.unit.console.web.stand import standing
from tests.unit.engine.lab import Lab, virtual

ITEM = "say-ann/say#1"
PAGE = f"/inbox/{quote(ITEM)}"
MILLION = 1_000_000


def deep() -> Any:
    value: Any = 1
    for _ in range(28):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "combining marks": "a" + "\u0301" * (MILLION // 2),
    "marks in short rows": "a\u0301\u0302\u0303\u0304" * (MILLION // 9),
    "bidi controls": "\u202e\u2066" * (MILLION // 6),
    "bidi between letters": "a\u202e" * (MILLION // 4),
    "lookalikes": "p\u0430y " * (MILLION // 5),
    "deep": deep(),
    "a long list": list(range(100_000)),
    "many names": {f"n{number}": "x" for number in range(20_000)},
}


def saying(what: Any) -> list[Any]:
    @tool(gate="true")
    async def say(what: Any) -> None:
        raise AssertionError

    @agent(run_id="say-{name}", tools=[say])
    async def desk(run: Run, name: str) -> None:
        await say(what)

    return [desk]


@pytest.mark.parametrize("kind", HOSTILE)
@virtual
async def test_pages_lists_and_answers_stay_small(lab: Lab, kind: str):
    async with standing(lab, agents=saying(HOSTILE[kind])) as stand, await stand.client("bea") as client:
        for path, most in (("/inbox", 100_000), ("/api/v1/items", 50_000), (PAGE, 1_500_000)):
            began = time.perf_counter()
            answered = await client.get(path)
            assert answered.status_code == 200
            assert len(answered.content) < most, (path, len(answered.content))
            assert time.perf_counter() - began < 30, path
        if kind != "deep":
            assert "more characters" in answered.text
            assert "Some of it is left out here" in answered.text
        kept = await client.get(f"{PAGE}?whole=1")
        assert kept.content.isascii()
        assert json.loads(kept.content)["what"] == HOSTILE[kind]
        shown = (await dossier(stand.app.service, ITEM)).digest
        taken = await client.post(PAGE, data={"type": "decline", "shown": shown, "why": "no"})
        assert taken.status_code == 303


@virtual
async def test_other_requests_are_answered_while_a_page_is_drawn(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """A page that is never done delays no other page, and its visitor is told after a while."""
    async with standing(lab) as stand, await stand.client("bea") as client:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def call(_self: object, _function: object) -> asyncio.Future[Any]:
            return never

        monkeypatch.setattr(type(stand.app.engine.environment.threads), "call", call)
        page, items = await asyncio.gather(client.get("/inbox"), client.get("/api/v1/items"))
        assert (page.status_code, "takes too long to draw" in page.text) == (503, True)
        assert items.status_code == 200


@virtual
async def test_lookalikes_are_named_on_the_page_in_the_list_and_over_the_api(lab: Lab):
    remark = "contains Cyrillic '\u0430' (U+0430) among Latin letters"
    async with standing(lab, agents=saying("to p\u0430ypal")) as stand, await stand.client("bea") as client:
        (item,) = (await client.get("/api/v1/items")).json()["items"]
        assert any(remark in one for one in item["marks"])
        found = (await client.get(f"/api/v1/items/{quote(ITEM)}")).json()
        assert any(remark in one for one in found["risks"])
        for path in ("/inbox", PAGE):
            assert "(U+0430) among Latin letters" in (await client.get(path)).text, path
