"""`holdfast inbox -i` as a person has it: a real process on a real terminal of 80 columns, driven by keys."""

import pytest

from tests.cli.lab import Lab
from tests.cli.terminal import COLUMNS, Terminal
from tests.cli.test_inbox import DESK


@pytest.fixture
def desk(holdfast: Lab) -> Lab:
    holdfast.directory.joinpath("desk.py").write_text(DESK)
    holdfast.directory.joinpath("inputs.jsonl").write_text('"1"\n"2"\n')
    holdfast("run", "desk.py:desk", "--inputs", "inputs.jsonl")
    return holdfast


def test_it_is_gone_through_with_keys_and_answers_are_on_record(desk: Lab):
    with Terminal(desk, "inbox", "-i", "--by", "bea") as screen:
        first = screen.see("q leave")
        assert "> approval refund-1/refund#1" in first
        assert "2 items" in first
        screen.type("j")
        assert "> approval refund-2/refund#1" in screen.see("q leave")
        screen.type("\r")
        assert '{"cents":9000,"customer":"2"}' in screen.see("q back")
        screen.type("y")
        screen.see("Note")
        screen.type("fine\r")
        screen.see("in the name of bea?")
        screen.type("y\r")
        assert "refund-2/refund#1: approve." in screen.see("q leave")
        screen.type("o")
        screen.see("q back")
        screen.type("n")
        screen.see("Why")
        screen.type("too much\r")
        screen.see("in the name of bea?")
        screen.type("n\r")
        assert "Nothing was said." in screen.see("q leave")
        screen.type("q")
        assert screen.end() == 0
    assert desk("resume", "refund-2").out == '"paid 9000 under True"\n'
    assert [one["item"] for one in desk("inbox", "--json").json] == ["refund-1/refund#1"]
    widths = [len(line) for line in screen.drawn.replace("\r", "").split("\n") if line.startswith((">", " "))]
    assert max(widths) <= COLUMNS


def test_what_goes_wrong_is_told_and_the_list_comes_back(desk: Lab):
    with Terminal(desk, "inbox", "-i", "--by", "bea") as screen:
        screen.see("q leave")
        screen.type("\r")
        screen.see("q back")
        desk("answer", "refund-1/refund#1", "no", "--by", "cid")  # somebody else is faster
        screen.type("y")
        screen.see("Note")
        screen.type("\r")
        screen.see("in the name of bea?")
        screen.type("y\r")
        assert "refund-1/refund#1 was answered, and is failed" in screen.see("q leave").replace("\r\n", "")
        screen.type("\x03")
        assert screen.end() == 0


def test_without_a_terminal_it_says_what_to_do(desk: Lab):
    told = desk("inbox", "-i")
    assert (told.status, "-i needs a terminal" in told.err) == (2, True)
    assert desk("inbox", "-i", "--json").status == 2


def test_a_hand_off_is_taken_over_with_a_key(holdfast: Lab):
    holdfast.directory.joinpath("desk.py").write_text(
        "from holdfast import Run, agent\n\n\n@agent(run_id='trip-{name}')\nasync def desk(run: Run, name: str) -> str:\n"
        "    return str(await run.hand_off('person', why='the airline went on strike'))\n"
    )
    holdfast("run", "desk.py:desk", '"ann"')
    with Terminal(holdfast, "inbox", "-i", "--by", "bea") as screen:
        assert "handoff" in screen.see("q leave")
        screen.type("o")
        assert "t take over" in screen.see("q back")
        screen.type("t")
        screen.see("Note")
        screen.type("mine\r")
        screen.see("in the name of bea?")
        screen.type("y\r")
        assert "take over." in screen.see("q leave")
        screen.type("q")
        assert screen.end() == 0
    assert "by bea: mine" in holdfast("show", "trip-ann").out


def test_a_run_that_cannot_go_on_is_called_off_with_a_key(holdfast: Lab):
    code = (
        "from holdfast import Key, Run, agent, current_operation, tool\n\n\n@tool(idempotency=Key.forever())\n"
        "async def book(city: str) -> str:\n    return city + current_operation().key[:0]\n\n\n"
        "@agent(run_id='trip-{name}', tools=[book])\nasync def desk(run: Run, name: str) -> str:\n"
        "    await book('Rome')\n    return str(await run.ask('And now?'))\n"
    )
    holdfast.write("desk.py", code)
    holdfast("run", "desk.py:desk", '"ann"')
    holdfast.write("desk.py", code.replace("Rome", "Lisbon"))
    assert holdfast.apart("resume", "trip-ann").status == 4
    with Terminal(holdfast, "inbox", "-i", "--by", "bea") as screen:
        assert "diverged" in screen.see("q leave")
        screen.type("o")
        drawn = screen.see("q back")
        assert '- recorded: book {"city":"Rome"}' in drawn
        assert "g go on  t take over  b call off" in drawn
        screen.type("b")
        screen.see("Why")
        screen.type("too late\r")
        screen.see("in the name of bea?")
        screen.type("y\r")
        assert "abandon." in screen.see("q leave")
        screen.type("q")
        assert screen.end() == 0
    assert "cancelled: too late" in holdfast("ps", "--status", "stopped").words
