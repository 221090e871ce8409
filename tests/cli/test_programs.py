"""Two programs with an agent of the same name over one journal: each drives its own runs."""

import re
import shutil
from pathlib import Path

import pytest

from tests import forked
from tests.cli.lab import Lab, Said

# A program as people write it. KIND names it; its tool has a name of its own, so the other's code would diverge.
PROGRAM = '''
import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from beforehand import Beforehand, Key, Run, agent, current_operation, tool


@tool(name="pay_KIND", idempotency=Key(ttl=timedelta(hours=24)))
async def pay(order: str) -> str:
    """Pay it."""
    with Path("world.txt").open("a") as world:
        world.write(f"KIND {order} {current_operation().key}\\n")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)
    return "KIND"


@agent(run_id="order-{order}")
async def main(run: Run, order: str) -> str:
    paid = await pay(order)
    await run.sleep(timedelta(milliseconds=1))
    return paid


async def begin() -> None:
    async with Beforehand("desk.db", agents=[main]) as app:
        print(await app.run(main, sys.argv[1]))
        while Path("stay").exists():
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(begin())
'''
JOURNAL = ("--journal", "desk.db")


def write(lab: Lab, kind: str, directory: str = ".") -> Path:
    place = lab.directory / directory
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{kind}.py"
    path.write_text(PROGRAM.replace("KIND", kind))
    return path


def started(lab: Lab, *words: str, **environment: str) -> Said:
    ended = forked.run(list(words), cwd=lab.directory, env=lab.surroundings(environment))
    return Said(ended.returncode, ended.stdout, ended.stderr)


def of(lab: Lab, run: str) -> dict[str, object]:
    return next(line for line in lab(*JOURNAL, "ps", "--json").json["runs"] if line["run"] == run)


def next_steps(text: str) -> list[str]:
    return re.findall(r"(?:Next: |^  )(beforehand [^\n]+)", text, re.MULTILINE)


@pytest.fixture
def killed(beforehand: Lab) -> Lab:
    """The run order-1 of the program `shop`, whose process was killed after its payment; `billing` shares its journal."""
    write(beforehand, "shop")
    write(beforehand, "billing")
    assert started(beforehand, "shop.py", "1", DIE="1").status == -9
    return beforehand


def test_a_program_leaves_the_runs_of_another_alone(killed: Lab):
    assert started(killed, "billing.py", "2").out.strip() == "billing"
    said = killed.apart(*JOURNAL, "worker", "billing.py:main", "--once")
    assert said.status == 0, said.err
    assert "Runs of main of the program shop wait too" in said.remarks
    assert (of(killed, "order-1")["program"], of(killed, "order-1")["abandoned"]) == ("shop", True)
    assert [line.split()[0] for line in killed.world] == ["shop", "billing"]


@pytest.mark.parametrize(
    "words", [["shop.py", "3"], ["-m", "shop", "3"], ["-m", "beforehand", *JOURNAL, "worker", "shop.py:main", "--once"]]
)
def test_its_own_program_takes_it_up_however_it_is_started(killed: Lab, words: list[str]):
    assert started(killed, "billing.py", "2").status == 0
    (killed.directory / "stay").touch()
    if words[1] != "beforehand":
        process = forked.start(words, cwd=killed.directory, env=killed.surroundings({}))
        try:
            while of(killed, "order-1")["status"] != "completed":
                assert process.poll() is None
        finally:
            (killed.directory / "stay").unlink()
            process.wait(30)
    else:
        while of(killed, "order-1")["status"] != "completed":  # its pause of a millisecond may just have begun
            assert started(killed, *words).status in {0, 3}
    assert killed.world[-1].split()[0] in {"shop", "billing"}
    keys = {line.split()[2] for line in killed.world if line.startswith("shop 1 ")}
    assert len(keys) == 1


def test_where_it_is_seen_that_no_process_drives_it(killed: Lab):
    assert started(killed, "billing.py", "2").status == 0
    seen = {look: killed(*JOURNAL, *look.split()) for look in ("ps", "show order-1", "doctor")}
    for look, said in seen.items():
        assert "worker --program shop" in said.words, (look, said.out)
    assert "Its process ended, waits for a worker of shop." in seen["show order-1"].words
    for look, said in seen.items():
        for step in next_steps(said.out):
            done = killed.apart(*step.split()[1:], *(["--once"] if "worker" in step else []))
            assert done.status in {0, 3}, (look, step, done.err)
    assert of(killed, "order-1")["status"] == "completed"
    assert {line.split()[0] for line in killed.world if line.split()[1] == "1"} == {"shop"}


def test_a_program_that_is_deployed_elsewhere_drives_its_runs(killed: Lab):
    assert started(killed, "billing.py", "2").status == 0
    moved = write(killed, "shop", "releases/2027-01-31")
    (killed.directory / "shop.py").unlink()
    assert started(killed, str(moved), "3").out.strip() == "shop"
    while of(killed, "order-1")["status"] != "completed":
        said = killed.apart(*JOURNAL, "worker", "--program", "shop", "--once")
        assert said.status in {0, 3}, said.err
    assert "billing" not in {line.split()[0] for line in killed.world if line.split()[1] == "1"}


def test_a_program_under_another_name_takes_a_run_that_is_named_and_those_of_its_former_name(killed: Lab):
    assert started(killed, "billing.py", "2").status == 0
    shutil.move(killed.directory / "shop.py", killed.directory / "store.py")
    for look in ("ps", "show order-1", "doctor"):
        said = killed(*JOURNAL, *look.split())
        assert "resume order-1 --agent FILE.py:NAME" in said.words, (look, said.out)
    refused = killed(*JOURNAL, "resume", "order-1")
    assert refused.status == 2
    assert "It belongs to the program shop" in refused.remarks
    assert "last found as" in refused.remarks
    assert killed.apart(*JOURNAL, "worker", "store.py:main", "--once").status == 0
    assert of(killed, "order-1")["abandoned"]  # until the name is declared
    declared = (killed.directory / "store.py").read_text().replace('order-{order}"', 'order-{order}", program="shop"')
    (killed.directory / "declared.py").write_text(declared)
    while of(killed, "order-1")["status"] != "completed":
        assert killed.apart(*JOURNAL, "worker", "declared.py:main", "--once").status in {0, 3}


def test_a_run_that_is_named_is_resumed_with_the_code_that_is_named(killed: Lab):
    shutil.move(killed.directory / "shop.py", killed.directory / "store.py")
    while (said := killed.apart(*JOURNAL, "resume", "order-1", "--agent", "store.py:main")).status == 3:
        pass
    assert said.status == 0, said.err


def test_a_run_of_another_program_is_not_begun_again_as_ones_own(killed: Lab):
    said = started(killed, "billing.py", "1")
    assert said.status == 1
    assert "run order-1 belongs to the agent main of the program shop, not of billing" in said.err
    assert [line.split()[0] for line in killed.world] == ["shop"]


def test_one_worker_for_two_programs_says_which_two_to_start(killed: Lab):
    assert started(killed, "billing.py", "2").status == 0
    said = killed.apart(*JOURNAL, "worker", "--once")
    assert said.status == 2
    found = re.findall(r"worker --program (\w+)", said.remarks)
    assert sorted(found) == ["billing", "shop"]
    for program in found:
        assert killed.apart(*JOURNAL, "worker", "--program", program, "--once").status in {0, 3}


def test_one_program_is_named_in_no_command(killed: Lab):
    said = killed(*JOURNAL, "ps")
    assert "Next: beforehand --journal desk.db worker" in said.words
    assert "--program" not in said.words
    assert killed(*JOURNAL, "worker", "a.py:b", "--program", "shop").status == 2
    assert killed(*JOURNAL, "worker", "--program", "nowhere").status == 2
