"""`beforehand run --inputs`: one run per line, whatever is wrong with some of them."""

import json

import pytest

from tests.cli.lab import Lab


def test_every_line_is_a_run_and_the_summary_counts_them(beforehand: Lab):
    beforehand.write("tickets.jsonl", "".join(beforehand.ticket(str(number)) + "\n" for number in range(30)))
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl", "--concurrency", "4")
    assert (said.status, said.out) == (0, "30 lines: 30 completed\n")
    assert len(beforehand.world) == 60


def test_a_malformed_line_is_named_and_the_rest_still_runs(beforehand: Lab):
    lines = [beforehand.ticket("1"), "nonsense", "", '{"id": "2", "cents": "x"}', beforehand.ticket("3", mode="lost")]
    beforehand.write("tickets.jsonl", "\n".join(lines))
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl")
    assert said.status == 1
    assert "line 2" in said.out
    assert "JSON is malformed" in said.words
    assert "line 4" in said.out
    assert "Expected `int`, got `str`" in said.words
    assert said.lines[-2] == "4 lines: 1 completed, 2 refused, 1 suspended"
    assert sorted(line.split()[0] for line in beforehand.world) == ["refund", "refund", "restock", "restock"]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_line_that_is_no_text_is_named_and_the_rest_still_runs(beforehand: Lab, kind: str):
    lines = {
        "jsonl": [
            b"\xef\xbb\xbf" + beforehand.ticket("1").encode(),
            b'{"id": "\xe9"}',
            beforehand.ticket("3").encode(),
        ],
        "csv": [b"id,mode", b"1,", b"\xe9,", b"3,"],
    }[kind]
    (beforehand.directory / f"latin.{kind}").write_bytes(b"\n".join(lines))
    said = beforehand("run", "desk.py:desk", "--inputs", f"latin.{kind}", "--json")
    assert said.status == 1
    assert said.json["outcomes"] == {"completed": 2, "refused": 1}
    refused = next(end for end in said.json["runs"] if end["status"] == "refused")
    assert (refused["line"], refused["problem"]["message"]) == (2 if kind == "jsonl" else 3, "it is not UTF-8 text")


def test_giving_the_file_again_goes_on_and_repeats_nothing(beforehand: Lab):
    beforehand.write("tickets.jsonl", "\n".join([beforehand.ticket("1"), beforehand.ticket("2", mode="boom")]))
    assert beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl").status == 1
    beforehand.write("tickets.jsonl", "\n".join([beforehand.ticket("1"), beforehand.ticket("3")]))
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl", "--json")
    assert said.status == 0
    assert [(end["line"], end["run"], end["result"]) for end in said.json["runs"]] == [
        (1, "ticket-1", "r-1"),
        (2, "ticket-3", "r-3"),
    ]
    assert len(beforehand.world) == 6


def test_a_run_that_waits_is_the_status_where_nothing_failed(beforehand: Lab):
    beforehand.write("tickets.jsonl", "\n".join([beforehand.ticket("1"), beforehand.ticket("2", mode="lost")]))
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl", "--json")
    assert said.status == said.json["exit_status"] == 3
    assert said.json["outcomes"] == {"completed": 1, "suspended": 1}
    assert said.json["runs"][1]["waits"][0]["step"] == "restock#1"


def test_csv_cells_are_read_as_the_input_types_say(beforehand: Lab):
    beforehand.write("tickets.csv", 'id,cents,mode\n007,500,\n8,abc,\n9,1,"a, b"\n10,1\n')
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.csv", "--json")
    ends = {end["line"]: end for end in said.json["runs"]}
    assert (ends[2]["run"], ends[2]["status"]) == ("ticket-007", "completed")
    assert "Expected `int`, got `str`" in ends[3]["problem"]["message"]
    assert ends[4]["status"] == "completed"
    assert "another number of cells than the header (3)" in ends[5]["problem"]["message"]
    assert said.status == 1
    assert "restock a, b" in beforehand.world


def test_lines_may_come_from_standard_input(beforehand: Lab):
    said = beforehand("run", "desk.py:desk", "--inputs", "-", given=beforehand.ticket("1") + "\n")
    assert said.out == "1 line: 1 completed\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--inputs", "nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file"),
        (["--inputs", "tickets.jsonl", "--run-id", "x"], "--inputs names its runs by itself"),
        (["--inputs", "tickets.jsonl", "--concurrency", "0"], "Invalid value for '--concurrency'"),
        ([], "desk needs an input"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(beforehand: Lab, arguments: list[str], problem: str):
    beforehand.write("tickets.jsonl", beforehand.ticket("1"))
    said = beforehand("run", "desk.py:desk", *arguments)
    assert said.status == 2
    assert problem in said.err
    assert not beforehand.world


def test_two_lines_of_one_run_are_one_run(beforehand: Lab):
    beforehand.write("tickets.jsonl", "\n".join([beforehand.ticket("1")] * 2 + [json.dumps({"id": "1", "cents": 3})]))
    said = beforehand("run", "desk.py:desk", "--inputs", "tickets.jsonl", "--json")
    assert said.json["outcomes"] == {"completed": 2, "refused": 1}
    assert "another input" in said.json["runs"][2]["problem"]["message"]
    assert len(beforehand.world) == 2
