"""`beforehand standing`: what is allowed in advance, what is spent of it, and several processes that spend it at once."""

import subprocess

import pytest

from beforehand.cli.inputs import read_moment, read_past
from beforehand.errors import UsageError
from tests import forked
from tests.cli.lab import Lab
from tests.cli.test_inbox import DESK


def test_it_is_given_used_listed_and_revoked(beforehand: Lab):
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    beforehand("run", "desk.py:desk", '"0"')
    given = beforehand(
        "standing", "add", "--tool", "refund", "--where", 'cents <= 9000 && customer == "1"', "--until", "7d",
        "--times", "3", "--amount", "cents", "--total", "20000", "--by", "bea", "--why", "known", "--json",
    ).json  # fmt: skip
    assert (given["tool"], given["by"], given["times"]) == ("refund", "bea", 3)
    assert beforehand("run", "desk.py:desk", '"1"').out == '"paid 9000 under True"\n'
    assert f"on the standing permission {given['id']}" in beforehand("show", "refund-1").out
    assert f"on the standing permission {given['id']}" in beforehand("why", "refund-1/refund#1").out
    assert beforehand("run", "desk.py:desk", '"2"').status == 3
    lines = beforehand("standing", "list").lines
    assert lines[0] == f'{given["id"]}  refund where cents <= 9000 && customer == "1"'
    assert "used 1 of 3 times, 9000 of 20000 cents: known" in lines[1]
    assert beforehand("standing", "list", "--tool", "other").lines == ["No standing permissions yet."]
    assert beforehand("standing", "revoke", given["id"], "--by", "cid").lines == [
        f"{given['id']} is revoked; it was used 1 times."
    ]
    assert "it was revoked by cid" in beforehand("standing", "list").out
    again = beforehand("standing", "revoke", given["id"])
    assert (again.status, "was revoked by cid already" in again.err) == (2, True)
    unknown = beforehand("standing", "add", "--tool", "refund", "--where", "cent < 5", "--until", "1d")
    assert (unknown.status, "it uses cent; choose from: cents, customer" in unknown.remarks) == (2, True)
    assert "Check the name." in beforehand("standing", "add", "--tool", "refnd", "--until", "1d").remarks
    bad = beforehand("standing", "add", "--tool", "refund", "--until", "soon")
    assert (bad.status, "'soon' is not a time" in bad.err) == (2, True)


def test_processes_that_spend_it_at_once_never_overspend_it(beforehand: Lab):
    """Three processes, twelve refunds of 9000, and permission for 40,000 in all: four leave."""
    beforehand.directory.joinpath("desk.py").write_text(DESK)
    beforehand("run", "desk.py:desk", '"first"')
    beforehand(
        "standing", "add", "--tool", "refund", "--until", "1d", "--amount", "cents", "--total", "40000", "--by", "bea"
    )
    workers: list[subprocess.Popen[str]] = []
    for number in range(3):
        names = "".join(f'"{number}-{one}"\n' for one in range(4))
        beforehand.directory.joinpath(f"inputs-{number}.jsonl").write_text(names)
        command = ["-m", "beforehand", "run", "desk.py:desk", "--inputs", f"inputs-{number}.jsonl"]
        workers.append(
            forked.start(command, cwd=beforehand.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
    for worker in workers:
        worker.wait(timeout=60)
    (listed,) = beforehand("standing", "list", "--json").json
    assert (listed["spent"]["times"], listed["spent"]["sum"]) == (4, 36_000)
    assert len(beforehand("inbox", "--json").json) == 1 + 12 - 4


def test_times_are_read_as_people_write_them():
    assert read_moment("90m", 0) == 5_400_000
    assert read_moment("1d", 1) == 86_400_001
    assert read_past("90m", 5_400_001) == 1
    assert read_moment("1970-01-02", 0) == 86_400_000
    assert read_moment("1970-01-01T01:00+01:00", 0) == 0
    with pytest.raises(UsageError, match="is not a time"):
        read_moment("xd", 0)
