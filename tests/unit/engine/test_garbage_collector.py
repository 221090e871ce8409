"""The garbage collector of the interpreter belongs to the application: an app tunes it only where it is told to."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner

from beforehand import Beforehand
from beforehand.cli import apps
from beforehand.cli.main import main
from beforehand.engine.settings import Settings

TUNED = Settings(gc_threshold=50_000)
PROGRAM = """
from beforehand import Run, agent

@agent(run_id="order-{number}")
async def desk(run: Run, number: int) -> int:
    return number
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()  # what the suite froze between two tests
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_it_is_left_alone_by_default(tmp_path: Path):
    async def body() -> None:
        before = gc.get_threshold(), gc.get_freeze_count()
        async with Beforehand(tmp_path / "j.db"):
            assert (gc.get_threshold(), gc.get_freeze_count()) == before

    asyncio.run(body())


def test_it_is_tuned_while_the_app_is_open(tmp_path: Path):
    async def body() -> None:
        before = gc.get_threshold()
        async with Beforehand(tmp_path / "j.db", settings=TUNED):
            assert gc.get_threshold() == (50_000, *before[1:])
            assert gc.get_freeze_count() > 0
        assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)

    asyncio.run(body())


def test_the_last_of_several_apps_restores_it(tmp_path: Path):
    async def body() -> None:
        before = gc.get_threshold()
        async with Beforehand(tmp_path / "a.db", settings=TUNED):
            async with Beforehand(tmp_path / "b.db", settings=Settings(gc_threshold=90_000)):
                assert gc.get_threshold()[0] == 90_000
            assert gc.get_threshold()[0] == 50_000
            assert gc.get_freeze_count() > 0
        assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)

    asyncio.run(body())


def test_what_the_application_froze_stays_frozen(tmp_path: Path):
    async def body() -> None:
        gc.freeze()
        frozen = gc.get_freeze_count()
        async with Beforehand(tmp_path / "j.db", settings=TUNED):
            assert gc.get_freeze_count() <= frozen
        assert gc.get_freeze_count() > 0

    asyncio.run(body())


def test_an_app_that_could_not_be_opened_leaves_it_alone(tmp_path: Path):
    async def body() -> None:
        before = gc.get_threshold(), gc.get_freeze_count()
        app = Beforehand(tmp_path, settings=TUNED)  # a directory is no journal
        with pytest.raises(Exception, match=str(tmp_path)):
            await app.open()
        assert (gc.get_threshold(), gc.get_freeze_count()) == before

    asyncio.run(body())


def test_a_command_that_may_have_many_live_runs_tunes_it_and_one_of_a_single_run_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program, journal = tmp_path / "desk.py", tmp_path / "desk.db"
    program.write_text(PROGRAM)
    seen: list[int] = []

    class Watched(Beforehand):
        async def __aenter__(self) -> Self:
            opened = await super().__aenter__()
            seen.append(gc.get_threshold()[0])
            return opened

    monkeypatch.setattr(apps, "Beforehand", Watched)
    before = gc.get_threshold()[0]
    for command in (["run", f"{program}:desk", "1"], ["worker", f"{program}:desk", "--once"]):
        ended = CliRunner().invoke(main, ["--journal", str(journal), *command])
        assert ended.exit_code == 0, ended.output
    assert seen == [before, apps.MANY_RUNS_GC]
    assert gc.get_threshold()[0] == before
