"""`tools`: contracts in words, the most dangerous tool first."""

import pytest

from tests.cli.lab import DESK, Lab


def test_tools_are_shown_with_what_is_dangerous_about_them(beforehand: Lab):
    found = {one["tool"]: one for one in beforehand("tools", "desk.py:desk", "--json").json["tools"]}
    assert list(found) == ["restock", "refund", "stock"]
    assert [one["danger"] for one in found.values()] == ["high", "some", "none"]
    assert found["restock"]["dangers"][0] == ("after a crash during the call its outcome is unknown: a person is asked")
    assert found["restock"]["after_doubt"] == "it is never sent again by itself: a person is asked"
    assert "the system dedupes on our key for 1 day" in found["refund"]["promises"][0]
    assert found["stock"]["dangers"] == []
    said = beforehand("tools", "desk.py:desk")
    assert said.lines[0] == "restock  write  high danger"
    assert "its outcome is unknown" in said.words


def test_verifiers_and_compensations_make_a_tool_less_dangerous(beforehand: Lab):
    handlers = (
        "@restock.verify(settle_window=timedelta(seconds=90), check_first=True)\n"
        "async def there(operation: Operation[None]) -> Verdict[None]:\n    return DidNotHappen()\n\n\n"
        "@restock.compensate(restores=True)\nasync def take_back(operation: Operation[None]) -> None: ...\n\n\n@agent("
    )
    beforehand.write("desk.py", DESK.replace("@agent(", handlers))
    one = next(one for one in beforehand("tools", "desk.py:desk", "--json").json["tools"] if one["tool"] == "restock")
    assert one["danger"] == "low"
    assert "its effect can be read back; settle window: 90 seconds" in one["promises"]
    assert "it is looked for before the first attempt" in one["promises"]
    assert "a compensation restores the world" in one["promises"]
    assert "it is read back" in one["after_doubt"]


def test_tools_of_the_project_need_no_target(beforehand: Lab):
    beforehand.write("pyproject.toml", '[tool.beforehand]\nagents = ["desk.py:desk"]\n')
    assert "restock" in beforehand("tools").out


def test_tools_of_nobody(beforehand: Lab):
    said = beforehand("tools")
    assert said.status == 2
    assert "beforehand tools desk.py:refund_desk" in said.err


@pytest.mark.parametrize(
    ("once", "promise"),
    [
        ('Once("sku")', "a model that asks for exactly the same call again gets: replay"),
        ('Once("sku", reworded=True, then="block")', "a model that asks for the same sku again gets: block"),
    ],
)
def test_it_is_said_when_a_repeat_is_one_in_the_same_words_only(beforehand: Lab, once: str, promise: str):
    beforehand.write("desk.py", f"from beforehand import Once\n{DESK}".replace("@tool\n", f"@tool(once={once})\n", 1))
    found = beforehand("tools", "desk.py:desk", "--json").json["tools"]
    assert promise in next(one["promises"] for one in found if one["tool"] == "restock")
