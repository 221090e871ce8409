"""Recorded errors that commands print: commands of the runtime name the journal, and texts of users are kept."""

import pytest

from beforehand.cli.config import located_report
from beforehand.inspect.text import without_commands
from tests.cli.lab import Lab

SHOP = """
from beforehand import Run, agent, tool


@tool(on_unknown="raise")
def restock(sku: str) -> None:
    raise TimeoutError("no answer. Next: beforehand ps")


@tool
def refund(order: str) -> str:
    return order


@agent(run_id="run-{mode}")
async def desk(run: Run, mode: str) -> None:
    if mode == "mine":
        raise ValueError("ask ann. Next: beforehand show run-mine")
    if mode == "unknown":
        await restock("mug")
    await refund("A-1")
    await run.wait_for("approved")


@agent(run_id="boast-{word}", requires=[refund])
async def boaster(run: Run, word: str) -> str:
    return word
"""
OPTION = ("--journal", "data/shop.db")


@pytest.fixture
def shop(beforehand: Lab) -> Lab:
    beforehand.environment["COLUMNS"] = "600"
    (beforehand.directory / "data").mkdir()
    beforehand.write("shop.py", SHOP)
    return beforehand


def printed(shop: Lab, run: str) -> list[str]:
    """The text of the run in each command that prints the reason of its stop."""
    commands = (("show", run), ("ps", "--search", run), ("inbox",), ("take-over", run, "--look"))
    return [shop(*command, *OPTION).words for command in commands]


def test_a_command_that_the_runtime_recorded_names_the_journal(shop: Lab):
    assert shop("run", "shop.py:desk", '"unknown"', *OPTION).status == 1
    for text in printed(shop, "run-unknown"):
        assert "Next: beforehand --journal data/shop.db why run-unknown/restock#1" in text
    assert "no answer. Next: beforehand ps" in shop("show", "run-unknown", *OPTION).words


def test_a_command_in_the_text_of_a_user_is_kept(shop: Lab):
    assert shop("run", "shop.py:desk", '"mine"', *OPTION).status == 1
    for text in printed(shop, "run-mine"):
        assert "ValueError: ask ann. Next: beforehand show run-mine" in text


def test_the_record_of_an_unproven_claim_leaves_the_next_step_to_its_reader(shop: Lab):
    assert shop("run", "shop.py:boaster", '"done"', *OPTION).status == 1
    assert "Next:" not in shop("inbox", "--json", *OPTION).out
    before, _, after = shop("show", "boast-done", *OPTION).words.partition("Next: ")
    assert "claims what is not proven: no refund of this run succeeded" in before
    assert after == "after a fix: beforehand --journal data/shop.db resume boast-done"


def test_the_record_of_a_divergence_leaves_the_next_step_to_its_reader(shop: Lab):
    assert shop("run", "shop.py:desk", '"wait"', *OPTION).status == 3
    shop.write("shop.py", SHOP.replace('refund("A-1")', 'refund("B-2")'))
    assert shop.apart("resume", "run-wait", "--agent", "shop.py:desk", *OPTION).status == 4
    row = shop("ps", "--json", *OPTION).json["runs"][0]
    assert row["reason"] == "diverged: ReplayDiverged: run run-wait: refund#1 is another call than the recorded one."
    assert "Next:" not in shop("inbox", "--json", *OPTION).out
    shown = shop("show", "run-wait", *OPTION).words
    before, _, after = shown.partition("Next: ")
    assert "refund#1 is another call than the recorded one." in before
    assert after.startswith("restore the code (or add a version marker), and see where it differs")
    assert after.endswith(": beforehand --journal data/shop.db replay run-wait")


OPTED = "--journal shop.db "


@pytest.mark.parametrize(
    ("text", "located"),
    [
        (
            "diverged: ReplayDiverged: run r: x. Next: beforehand replay r shows where",  # recorded by an earlier version
            "diverged: ReplayDiverged: run r: x. Next: beforehand --journal shop.db replay r shows where",
        ),
        (
            "error: ExceptionGroup: two; the first of them: OperationFailed: it failed. Next: beforehand why r/a",
            "error: ExceptionGroup: two; the first of them: OperationFailed: it failed. Next: beforehand --journal shop.db why r/a",
        ),
        ("paused by ann: beforehand unpause r", "paused by ann: beforehand --journal shop.db unpause r"),
        ("error: Rejected: refused. Next: beforehand why r", "error: Rejected: refused. Next: beforehand why r"),
        ("error: OperationFailed: try beforehand ps", "error: OperationFailed: try beforehand ps"),
        ("which of beforehand show a, beforehand show b?", "which of beforehand show a, beforehand show b?"),
    ],
)
def test_only_the_last_sentence_of_the_runtime_is_changed(text: str, located: str):
    assert located_report(text, OPTED) == located
    assert located_report(text, "") == text


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("error: OperationFailed: it failed. Next: beforehand why r/a", "error: OperationFailed: it failed."),
        ("paused by ann: beforehand unpause r", "paused by ann"),
        ("error: Rejected: refused. Next: beforehand why r", "error: Rejected: refused. Next: beforehand why r"),
        ("approve it? (beforehand answer r/a --yes)", "approve it? (beforehand answer r/a --yes)"),
    ],
)
def test_pages_and_notices_leave_out_the_commands_of_the_runtime(text: str, facts: str):
    assert without_commands(text) == facts


def test_a_text_that_was_cut_is_kept():
    """Its last sentence may be of the message that was cut."""
    text = "error: OperationFailed: pay failed: I typed this. Next: beforehand ps ".ljust(500, "x")
    assert located_report(text, OPTED) == text


FAKE = "how much?\\nNext: beforehand cancel fake\\n  beforehand cancel fake\\r\\nKnown: all is well"
ASKER = f"""
from beforehand import Run, agent, tool


@tool(gate="true", title="pay {{to}}")
def pay(to: str) -> None: ...


@agent(run_id="run-{{mode}}")
async def desk(run: Run, mode: str) -> None:
    if mode == "ask":
        await run.ask("{FAKE}")
    if mode == "pay":
        await pay("{FAKE}")
    raise RuntimeError("{FAKE}")
"""


@pytest.mark.parametrize("mode", ["ask", "pay", "raise"])
def test_a_text_with_line_ends_makes_no_line_that_looks_like_ours(shop: Lab, mode: str):
    shop.write("asker.py", ASKER)
    run = f"run-{mode}"
    item = {"ask": f"{run}/ask#1", "pay": f"{run}/pay#1", "raise": run}[mode]
    said = [shop("run", "asker.py:desk", f'"{mode}"')]
    said += [shop(*words) for words in (("inbox", "--item", item), ("inbox",), ("show", run), ("ps",), ("why", item))]
    for line in (line for one in said for line in (one.out + one.err).split("\n")):
        assert not line.strip().startswith(("Next: beforehand cancel fake", "beforehand cancel fake", "Known: all")), (
            line
        )
    assert "beforehand cancel fake" in said[1].out, "the text is shown all the same"


FOLDED = f"{'beforehand cancel fake ' * 40}"
"""A text of which each line begins as a command of ours does, however it is folded and wherever it begins."""


@pytest.mark.parametrize("columns", ["40", "80", "133"])
@pytest.mark.parametrize("mode", ["ask", "pay", "raise"])
def test_no_line_of_a_folded_text_looks_like_ours(shop: Lab, mode: str, columns: str):
    shop.environment["COLUMNS"] = columns
    shop.write("asker.py", ASKER.replace(FAKE, FOLDED))
    run = f"run-{mode}"
    item = {"ask": f"{run}/ask#1", "pay": f"{run}/pay#1", "raise": run}[mode]
    said = [shop("run", "asker.py:desk", f'"{mode}"')]
    said += [shop(*words) for words in (("inbox", "--item", item), ("inbox",), ("show", run), ("ps",), ("why", item))]
    said.append(shop("undo", run, "--dry-run"))
    said.append(shop("take-over", run, "--look"))
    for line in (line for one in said for line in (one.out + one.err).split("\n")):
        assert not line.strip().startswith(("beforehand cancel fake", "cancel fake", "fake")), line
