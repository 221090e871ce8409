"""`beforehand inbox`: what waits for people, and the answers that let it go on."""

import re

import pytest

from tests.cli.lab import Lab
from tests.cli.terminal import Terminal

DESK = '''
from beforehand import Key, Run, agent, current_operation, tool


@tool(gate="cents > 5000", idempotency=Key.forever())
def refund(customer: str, cents: int) -> str:
    """Pay it back."""
    return f"paid {cents} under {len(current_operation().key) > 0}"


@agent(run_id="refund-{name}", tools=[refund])
async def desk(run: Run, name: str) -> str:
    """Refund ninety euros."""
    return await refund(name, 9000)
'''


@pytest.fixture
def asked(beforehand: Lab) -> Lab:
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    begun = beforehand("run", "desk.py:desk", '"9"')
    assert begun.status == 3
    assert "beforehand answer refund-9/refund#1 yes --shown " in begun.err
    assert "UTC, then it is refused, and nothing is sent)" in begun.err
    return beforehand


def test_an_approval_is_listed_given_and_used(asked: Lab):
    first, *rest = asked("inbox").lines
    assert first.startswith("approval refund-9/refund#1  until 20")
    assert rest == [
        '  may refund(cents=9000, customer="9") be sent? the contract asks for a person: cents > 5000',
        "  then it is refused, and nothing is sent",
        "  beforehand why refund-9/refund#1",
        f"  beforehand answer refund-9/refund#1 yes {' '.join(asked.seen('refund-9/refund#1'))} --by NAME",
        f"  beforehand answer refund-9/refund#1 no {' '.join(asked.seen('refund-9/refund#1'))} --by NAME",
        "1 approval",
    ]
    (item,) = asked("inbox", "--json").json
    assert (item["kind"], item["run"], item["agent"]) == ("approval", "refund-9", "desk")
    assert "a person approves it, where cents > 5000" in asked("tools", "desk.py").out
    assert "beforehand answer refund-9/refund#1 yes" in asked("why", "refund-9/refund#1").out
    unclear = asked("answer", "refund-9/refund#1", "maybe", "--by", "bea")
    assert (unclear.status, "it takes: yes, no" in unclear.err) == (2, True)
    around = asked("resolve", "refund-9/refund#1", "--did-not-happen", "--retry", "--by", "bea")
    assert (around.status, "waits for an approval" in around.err) == (2, True)
    seen = asked.seen("refund-9/refund#1")
    assert asked("answer", "refund-9/refund#1", "yes", "--by", "bea", "--hours", "2", *seen).lines == [
        "refund-9/refund#1 is answered: yes, decided by bea.",
        "Next: beforehand resume refund-9",
    ]
    assert asked("inbox").lines == ["Nothing needs you."]
    assert "UTC: bea approves it (typed)" in asked("why", "refund-9/refund#1").words
    assert asked("resume", "refund-9").out == '"paid 9000 under True"\n'
    assert asked("inbox").lines == ["Nothing needs you."]


def test_a_title_is_read_wherever_the_call_is_shown(beforehand: Lab):
    titled = '@tool(title="refund {cents} cents to {customer}", gate'
    beforehand.directory.joinpath("desk.py").write_text(DESK.replace("@tool(gate", titled))
    assert beforehand("run", "desk.py:desk", '"9"').status == 3
    name, title = "refund-9/refund#1", "refund 9000 cents to 9"
    assert beforehand("inbox").lines[1:] == [
        f"  {title}: may it be sent? the contract asks for a person: cents > 5000",
        "  then it is refused, and nothing is sent",
        f"  beforehand why {name}",
        f"  beforehand inbox --item {name}",
        "1 approval",
    ], "no command approves arguments that are not shown beside it"
    assert 'arguments   {"cents":9000,"customer":"9"}' in beforehand("inbox", "--item", name).out
    assert f"{title}: may it be sent?" in beforehand("show", "refund-9").words
    for command in (("inbox", "--item", name), ("why", name), ("show", "refund-9")):
        assert title in beforehand(*command).words, command
    beforehand("answer", name, "yes", "--by", "bea", *beforehand.seen(name))
    assert beforehand("resume", "refund-9").status == 0
    assert f"{title} → " in beforehand("show", "refund-9").out


def test_a_no_ends_it_with_its_reason(asked: Lab):
    asked("answer", "refund-9/refund#1", "no", "--by", "bea", "--why", "the customer kept it")
    ended = asked("resume", "refund-9")
    assert ended.status == 1
    assert "the customer kept it" in ended.err
    assert "declines it: the customer kept it" in asked("show", "refund-9").out


def test_a_long_inbox_is_cut_and_says_so(beforehand: Lab):
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    beforehand.directory.joinpath("inputs.jsonl").write_text('"1"\n"2"\n"3"\n')
    beforehand("run", "desk.py:desk", "--inputs", "inputs.jsonl")
    assert beforehand("inbox", "--limit", "1").lines[-2:] == ["... and 2 more: --limit 3", "3 approvals"]
    assert len(beforehand("inbox", "--json").json) == 3


def test_one_item_is_shown_in_full_and_answered_by_what_was_shown(asked: Lab):
    told = asked("inbox", "--item", "refund-9/refund#1").out
    for line in (
        'arguments   {"cents":9000,"customer":"9"}',
        'may refund(cents=9000, customer="9") be sent? the contract asks for a person: cents > 5000',
        "run refund-9",
    ):
        assert line in told
    assert told.count("cents > 5000") == 1, "the condition is named once"
    digest = asked("inbox", "--item", "refund-9/refund#1", "--json").json["digest"]
    assert digest in told
    other = asked("answer", "refund-9/refund#1", "yes", "--shown", "0" * 32)
    assert (other.status, "has changed since it was shown" in other.err) == (2, True)
    assert asked("answer", "refund-9/refund#1", "yes", "--shown", digest, "--by", "bea").status == 0


def test_other_arguments_a_result_and_a_question_back(asked: Lab):
    refused = asked("answer", "refund-9/refund#1", "--edit", '{"cents": "many"}')
    assert (refused.status, "Expected `int`" in refused.err) == (2, True)
    assert asked("answer", "refund-9/refund#1", "--edit", "5").status == 2
    assert asked("answer", "refund-9/refund#1", "--stand-in", "5").status == 2
    assert "is answered: edit" in asked("answer", "refund-9/refund#1", "--edit", '{"cents": 6000}', "--by", "bea").out
    assert asked("resume", "refund-9").status == 3
    own = asked("answer", "refund-9/refund#1", "yes", "--by", "Bea", *asked.seen("refund-9/refund#1"))
    assert (own.status, "cannot approve an edit of their own" in own.err) == (2, True)
    assert asked("answer", "refund-9/refund#1", "yes", "--by", "cid", *asked.seen("refund-9/refund#1")).status == 0
    assert asked("resume", "refund-9").out == '"paid 6000 under True"\n'
    assert 'proposes {"cents":6000} instead' in asked("show", "refund-9").out
    asked("run", "desk.py:desk", '"10"')
    assert asked("answer", "refund-10/refund#1", "--ask", "why?", "--by", "bea").status == 0
    assert "why?" in asked("resume", "refund-10").err
    asked("run", "desk.py:desk", '"11"')
    assert asked("answer", "refund-11/refund#1", "--stand-in", '"by hand"', "--by", "bea").status == 0
    assert asked("resume", "refund-11").out == '"by hand"\n'


def test_several_are_shown_and_answered_together_or_not_at_all(beforehand: Lab):
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    beforehand.directory.joinpath("inputs.jsonl").write_text('"1"\n"2"\n"3"\n')
    beforehand("run", "desk.py:desk", "--inputs", "inputs.jsonl")
    nothing = beforehand("answer", "yes")
    assert (nothing.status, "name the items, or --all" in nothing.err) == (2, True)
    without = beforehand("answer", "refund-1/refund#1")
    assert (without.status, "what is the answer to refund-1/refund#1?" in without.err) == (2, True)
    one_wrong = beforehand("answer", "refund-1/refund#1", "refund-9/refund#1", "yes", "--sure")
    assert one_wrong.status != 0
    assert beforehand("answer", "--all", "--json", "yes").status == 2
    assert beforehand("answer", "--all", "--queue", "nobody", "yes").lines == ["No approval is waiting."]
    beforehand("hand", "refund-3/refund#1", "--until", "2h")
    declined = beforehand("answer", "--all", "no", given="n\n")
    assert "refund-3" not in declined.out, "it rests"
    beforehand("hand", "refund-3/refund#1", "--to", "bea")
    assert "No answer was given." in declined.out
    assert len(beforehand("inbox", "--json").json) == 3
    both = ("answer", "refund-1/refund#1", "refund-2/refund#1", "yes", "--by", "bea")
    for unread in ((*both, "--sure"), both):
        refused = beforehand(*unread, given="y\n")
        assert (refused.status, "approving several items needs --shown" in refused.err) == (2, True)
    (shown,) = re.findall(r"--shown (\w+)", refused.err)
    other = beforehand(*both, "--shown", shown[:-1] + ("0" if shown[-1] != "0" else "1"))
    assert (other.status, "have changed since they were shown" in other.err) == (2, True)
    done = beforehand(*both, "--shown", shown)
    assert 'arguments   {"cents":9000,"customer":"1"}' in done.out
    assert "2 items are answered, decided by bea." in done.out
    assert len(beforehand("answer", "--all", "no", "--sure", "--json").json) == 1
    assert beforehand("inbox").lines == ["Nothing needs you."]


def test_items_are_handed_over_and_the_list_says_whose_they_are(asked: Lab):
    assert asked("hand", "refund-9/refund#1", "--to", "cid", "--why", "yours", "--by", "bea").lines == [
        "refund-9/refund#1: bea delegated it to cid: yours"
    ]
    assert asked("hand", "refund-9/refund#1", "--urgent", "--queue", "money", "--by", "cid").status == 0
    assert asked("hand", "refund-9/refund#1", "--until", "2h", "--json", "--by", "cid").json["queue"] == "money"
    assert "  urgent (1), in the queue money, snoozed until" in asked("inbox", "--queue", "money").out
    assert asked("inbox", "--mine", "cid").lines[0].startswith("No match. Without --mine and --queue: ")
    assert asked("hand", "refund-9/refund#1", "--until", "2h", "--urgent").status == 2


def test_a_yes_says_what_was_shown(asked: Lab):
    """Read at 9,000, changed by another person, pasted: what was not read is not approved."""
    (command,) = re.findall(r"beforehand (answer \S+ yes)[^\n]*(--shown \w+)", asked("inbox").out)
    pasted = [*" ".join(command).split(), "--by", "cid"]
    unread = asked("answer", "refund-9/refund#1", "yes", "--by", "cid")
    assert (unread.status, "needs the digest of what was shown" in unread.err) == (2, True)
    assert 'refund(cents=9000, customer="9")' in unread.err, "what it asks stands beside the command"
    assert command[1] in unread.err
    short = asked("answer", "refund-9/refund#1", "yes", "--by", "cid", "--shown", command[1].split()[1][:7])
    assert (short.status, "too short" in short.err) == (2, True)
    asked("answer", "refund-9/refund#1", "--edit", '{"cents": 1234567}', "--by", "bea")
    assert asked("resume", "refund-9").status == 3
    stale = asked(*pasted)
    assert (stale.status, "has changed since it was shown" in stale.err) == (2, True)
    assert asked("resume", "refund-9").status == 3


def test_no_command_approves_arguments_that_are_not_shown_beside_it(beforehand: Lab):
    long = DESK.replace("return await refund(name, 9000)", 'return await refund("x" * 400, 9000)')
    beforehand.directory.joinpath("desk.py").write_text(long)
    begun = beforehand("run", "desk.py:desk", '"9"')
    assert begun.status == 3
    item = "refund-9/refund#1"
    for said in (begun.err, beforehand("inbox").out):
        assert "more characters)" in said
        assert f"beforehand inbox --item {item}" in said
        assert "--shown" not in said
        assert " yes" not in said
    refused = beforehand("answer", item, "yes", "--by", "bea")
    assert (refused.status, f"the digest to give as --shown: beforehand inbox --item {item}" in refused.err) == (
        2,
        True,
    )
    assert beforehand("answer", item, "yes", "--by", "bea", *beforehand.seen(item)).status == 0


def test_a_person_at_a_terminal_reads_it_and_agrees(asked: Lab):
    with Terminal(asked, "answer", "refund-9/refund#1", "yes", "--by", "bea") as terminal:
        shown = terminal.see("Approve refund-9/refund#1, as shown?")
        assert '{"cents":9000,"customer":"9"}' in shown
        terminal.type("n\n")
        terminal.see("No answer was given.")
        assert terminal.end() == 0
    with Terminal(asked, "answer", "refund-9/refund#1", "yes", "--by", "bea") as terminal:
        terminal.see("as shown?")
        terminal.type("y\n")
        terminal.see("is answered: yes")
        assert terminal.end() == 0


def test_letters_that_look_like_others_and_long_texts_are_named_on_a_terminal(beforehand: Lab):
    hostile = DESK.replace(
        "return await refund(name, 9000)", 'return await refund("p\\u0430ypal" + "\\u0301" * 500_000, 9000)'
    )
    beforehand.directory.joinpath("desk.py").write_text(hostile)
    assert beforehand("run", "desk.py:desk", '"9"').status == 3
    remark = "contains Cyrillic '\u0430' (U+0430) among Latin letters"
    listed, shown = beforehand("inbox").out, beforehand("inbox", "--item", "refund-9/refund#1").out
    assert remark in listed
    assert remark in " ".join(shown.split())
    assert "more combining marks]" in shown
    assert "more characters: --json has all of it)" in " ".join(shown.split())
    assert len(listed) < 5_000
    assert len(shown) < 20_000
