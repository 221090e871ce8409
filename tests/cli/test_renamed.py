"""Runs whose agent was renamed in its file: every view says that its code is missing, and how new code drives them."""

import pytest

from beforehand.control.code_location import CodeLocation
from tests.cli.lab import Lab

CODE = """
from beforehand import Run, agent

@agent(run_id="r-{name}")
async def kid(run: Run, name: str) -> str:
    return name

@agent(run_id="o-{name}")
async def other(run: Run, name: str) -> str:
    return name
"""
STEP = 'declare it with @agent(name="kid"); beforehand worker FILE.py:NAME'


@pytest.fixture
def renamed(beforehand: Lab) -> Lab:
    beforehand.write("family.py", CODE)
    for target, name in (("kid", "ann"), ("kid", "ben"), ("other", "cid")):
        assert beforehand.apart("submit", f"family.py:{target}", f'"{name}"').status == 0
    beforehand.write("family.py", CODE.replace("kid", "child"))
    return beforehand


@pytest.mark.parametrize("code", [("family.py:child", "family.py:other"), ("--program", "family")])
def test_a_worker_reports_queued_runs_of_a_renamed_agent(renamed: Lab, code: tuple[str, ...]):
    worked = renamed.apart("worker", *code, "--once")
    assert (worked.status, worked.out) == (0, "1 run driven.\n")
    assert "Runs of kid of the program family wait too, and their code is not here" in worked.remarks
    assert STEP in worked.remarks
    assert "Runs are left in queues" not in worked.remarks


@pytest.mark.parametrize("view", ["ps", "top", "queues", "doctor", "show r-ann"])
def test_every_view_says_how_the_queued_runs_go_on(renamed: Lab, view: str):
    assert renamed.apart("worker", "family.py:other", "--once").status == 0
    shown = renamed(*view.split())
    assert STEP in shown.words
    assert not {"beforehand worker", "Next: beforehand worker"} & {line.strip() for line in shown.lines}
    if view == "doctor":
        assert "undriven runs of kid in queues" in shown.words
    else:
        assert "cannot start: its code is no longer at" in shown.words.lower()


def test_code_that_declares_the_former_name_drives_the_runs(renamed: Lab):
    refused = renamed.apart("resume", "r-ann", "--agent", "family.py:child")
    assert 'if it was renamed, declare @agent(name="kid")' in refused.remarks
    gone = renamed.apart("worker", "--program", "family", "--once")
    assert gone.out == "1 run driven.\n"
    renamed.write(
        "family.py", CODE.replace("def kid", "def child").replace("@agent(run_id", '@agent(name="kid", run_id', 1)
    )
    assert renamed.apart("worker", "family.py:child", "--once").out == "2 runs driven.\n"
    assert {one["status"] for one in renamed("ps", "--json").json["runs"]} == {"completed"}


def test_queued_runs_whose_file_was_moved_need_the_former_program(renamed: Lab):
    (renamed.directory / "family.py").rename(renamed.directory / "house.py")
    assert 'declare it with @agent(program="family")' in renamed("ps").words


@pytest.mark.parametrize(
    ("code", "there"),
    [
        ("def main(): ...", True),
        ("if True:\n    main = 1", True),
        ("from shop import main", True),
        ("from shop import *", True),
        ("globals()['main'] = 1", True),
        ("def broken(", True),
        ("def other():\n    main = 1", False),
        ("print(main)  # main", False),
    ],
)
def test_the_code_is_there_if_its_file_may_bind_the_name(beforehand: Lab, code: str, there: bool):
    (beforehand.directory / "shop").mkdir()
    beforehand.write("shop/desk.py", code)
    for target in (f"{beforehand.directory}/shop/desk.py:main", "shop.desk:main"):
        assert CodeLocation(target, str(beforehand.directory), "desk").exists == there
    assert CodeLocation("built.desk:main", str(beforehand.directory), "desk").exists
