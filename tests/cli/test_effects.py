"""`beforehand effects`: one question over all runs."""

import re
import unicodedata
from pathlib import Path

import pytest

from beforehand.inspect import effects as searching
from tests.cli.lab import Lab

DESK = """
from dataclasses import dataclass

from beforehand import Rejected, Run, agent, tool


@dataclass
class Order:
    name: str
    order: str
    cents: int
    body: str


@tool(claim="order")
async def pay(order: str, cents: int) -> str:
    if cents > 900:
        raise Rejected("over the limit")
    return f"paid {order}"


@tool
async def mail(to: list[str], body: str) -> str:
    if "lost" in body:
        raise TimeoutError("no answer")
    return "sent"


@agent(run_id="{order.name}")
async def desk(run: Run, order: Order) -> str:
    await pay(order.order, order.cents)
    await mail([f"{order.name}@mail.test"], order.body)
    return "done"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path, {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "LOGNAME": "anna"})
    lab.write("desk.py", DESK)
    for name, order, cents, body in (
        ("ann", "A/1", 5, "100% of 'it_all'"), ("bob", "B-2", 1000, "hello"), ("cid", "A/10", 7, "lost " + "x" * 9_000),
    ):  # fmt: skip
        lab("run", "desk.py:desk", f'{{"name": "{name}", "order": "{order}", "cents": {cents}, "body": "{body}"}}')
    return lab


def found(lab: Lab, *words: str) -> list[str]:
    said = lab("effects", *words, "--json")
    assert said.status == (0 if said.json["effects"] else 1), said.err
    assert not said.json["more"]
    return [f"{one['operation']} {one['status']}" for one in said.json["effects"]]


def test_a_business_key_is_found_whole_and_over_all_tools(lab: Lab):
    assert found(lab, "--key", "A/1") == ["ann/pay#1 succeeded"]
    assert found(lab, "--key", "B-2") == ["bob/pay#1 failed"]
    assert found(lab, "--key", "A/1", "--tool", "mail") == []
    assert found(lab, "--key", "A") == []


def test_a_recipient_is_found_whatever_the_case_and_never_as_a_part(lab: Lab):
    assert found(lab, "--to", "ANN@mail.test") == ["ann/mail#1 succeeded"]
    assert found(lab, "--to", "cid@mail.test") == ["cid/mail#1 unknown"], "its arguments are stored beside the record"
    assert found(lab, "--to", "mail.test") == []
    assert found(lab, "--to", "bob@mail.test") == [], "its run failed before"


def test_a_text_is_found_as_it_is_written(lab: Lab):
    assert found(lab, "--text", "100% of 'it_all'") == ["ann/mail#1 succeeded"]
    assert found(lab, "100% of 'it_all'") == ["ann/mail#1 succeeded"]
    assert "give one of them" in lab("effects", "a", "--text", "b").remarks
    assert found(lab, "--text", "100_ of") == []
    assert found(lab, "--text", "paid a/1") == ["cid/pay#1 succeeded", "ann/pay#1 succeeded"]
    assert found(lab, "--text", "paid", "--agent", "other") == []
    assert found(lab, "--text", "paid a/10", "--since", "2h") == ["cid/pay#1 succeeded"]


def test_people_read_one_line_each_and_the_next_command(lab: Lab):
    said = lab("effects", "--text", "mail.test")
    assert [line.split()[1:3] for line in said.lines[:2]] == [["cid/mail#1", "unknown"], ["ann/mail#1", "succeeded"]]
    assert "2 effects: 1 unknown, 1 succeeded." in said.out
    assert lab(*said.lines[-1].removeprefix("Next: beforehand ").split()).status == 0
    assert "--limit 2" in lab("effects", "--text", "mail.test", "--limit", "1").out


def test_a_question_without_a_condition_is_refused(lab: Lab):
    said = lab("effects", "--agent", "desk")
    assert said.status == 2
    assert "give --key, --to, --text or --tool" in said.remarks


def test_what_does_not_exist_is_an_exit_status_and_a_sentence(lab: Lab):
    for condition in ("--key", "--to", "--text", "--tool"):
        said = lab("effects", condition, "nobody")
        assert (said.status, said.lines[0]) == (1, "No effect in this journal fits."), condition
    assert "Searched" not in lab("effects", "--key", "A/1").out, "a business key has an index"


def test_case_does_not_count_in_any_language(lab: Lab):
    for name, word in (("zoe", "Zoë"), ("omega", "Ωμέγα")):
        fields = f'"order": "{word} {name}", "cents": 1, "body": "Größe {word}"'
        lab("run", "desk.py:desk", f'{{"name": "{name}", {fields}}}')
    assert found(lab, "--to", "ZOË ZOE") == ["zoe/pay#1 succeeded"]
    assert found(lab, "--text", "GRÖßE zO") == ["zoe/mail#1 succeeded"]
    assert found(lab, "--to", "ωΜΈγα omega") == ["omega/pay#1 succeeded"]
    assert found(lab, "--text", "Ωμέ", "--tool", "pay") == ["omega/pay#1 succeeded"], "as it is written, without ASCII"


def test_composed_and_decomposed_letters_are_equal(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    for name, form in (("one", "NFC"), ("two", "NFD")):
        fields = unicodedata.normalize(form, f'"order": "Zoë@müll.de {name}", "cents": 1, "body": "Ёж {name}"')
        lab("run", "desk.py:desk", f'{{"name": "{name}", {fields}}}')
    for page in (500, 1):
        monkeypatch.setattr(searching, "_PAGE", page)
        for form in ("NFC", "NFD"):
            for name in ("one", "two"):
                word = unicodedata.normalize(form, f"Zoë@müll.de {name}")
                assert found(lab, "--key", word) == [f"{name}/pay#1 succeeded"]
                assert found(lab, "--to", word.lower()) == [f"{name}/pay#1 succeeded"]
            for words, tool in (("Zoë@müll", "pay"), ("Ёж", "mail")):
                text = unicodedata.normalize(form, words)
                assert found(lab, "--text", text) == [f"two/{tool}#1 succeeded", f"one/{tool}#1 succeeded"]


@pytest.mark.parametrize(("at_once", "page"), [(1, 1), (3, 2), (7, 1)])
def test_a_search_in_small_pieces_finds_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, at_once: int, page: int
):  # fmt: skip
    questions = ("--tool", "pay"), ("--tool", "mail"), ("--text", "a"), ("--to", "cid@mail.test")
    whole = [lab("effects", *one, "--json").json for one in questions]
    assert all(one["searched"] == one["records"] > 20 for one in whole)
    monkeypatch.setattr(searching, "_AT_ONCE", at_once)
    monkeypatch.setattr(searching, "_PAGE", page)
    monkeypatch.setattr(searching, "_KEPT", 1)
    assert [lab("effects", *one, "--json").json for one in questions] == whole


def test_a_search_ends_where_there_is_enough(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(searching, "_AT_ONCE", 5)
    said = lab("effects", "--tool", "pay", "--limit", "1")
    assert said.lines[0].split()[1] == "cid/pay#1", "the newest"
    assert re.search(r"^Searched the newest \d+ of \d+ records\.$", said.out, re.MULTILINE)
    assert said.lines[-1] == "Next: more of them: the same command with --limit 2"


UNDONE = """
from beforehand import Operation, Run, agent, tool


@tool(claim="seat")
async def book(seat: str) -> str:
    return seat


@book.compensate(restores=True)
@tool
async def cancel_seat(operation: Operation[str]) -> str:
    if operation.result == "9Z":
        raise TimeoutError("no answer")
    return "free"


@agent(run_id="trip-{seat}")
async def trip(run: Run, seat: str) -> str:
    async with run.transaction("trip"):
        await book(seat)
        raise ValueError("changed my mind")
"""


def test_an_effect_that_was_undone_is_compensated(lab: Lab):
    lab.write("trips.py", UNDONE)
    lab("run", "trips.py:trip", '"1A"')
    lab("run", "trips.py:trip", '"9Z"')
    whole = [lab("effects", "--key", seat, "--json").json["effects"][0] for seat in ("1A", "9Z")]
    assert [one["status"] for one in whole] == ["compensated", "succeeded"], "the other compensation is unknown"
    assert [bool(one["compensated_by"]) for one in whole] == [True, True]
    assert all(one["settled_ms"] >= one["at_ms"] > 0 for one in whole)
    assert "1 effect: 1 compensated." in lab("effects", "--key", "1A").out
    assert "whether it was undone is open" in lab("effects", "--key", "9Z").out


def test_a_misspelled_name_is_not_taken_for_an_effect_that_was_not_made(lab: Lab):
    strange = lab("effects", "--to", "ann@mail.test", "--agent", "dsk")
    assert strange.status == 1
    assert "No run of an agent dsk is on record at all: did you mean desk?" in strange.remarks
    unheard = lab("effects", "--to", "ann@mail.test", "--tool", "male")
    assert unheard.status == 1
    assert "No operation of a tool male is on record at all" in unheard.remarks
    said = lab("effects", "--to", "zoe@mail.test", "--tool", "mail")
    assert "on record at all" not in said.out + said.err
