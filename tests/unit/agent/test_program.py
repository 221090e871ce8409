"""Which program an agent belongs to: the same however and from wherever its file is started."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from beforehand import Run, agent
from beforehand.agent.agent import program_of
from beforehand.errors import ContractError

CODE = """
from beforehand import Run, agent


@agent(run_id="r-{given}")
async def main(run: Run, given: str) -> str:
    return given


if __name__ == "__main__":
    print(main.program)
"""
ASK = "import sys; sys.path.insert(0, '.'); from {module} import main; print(main.program)"
LOADED = "from beforehand.cli.apps import load_agent; print(load_agent({target!r}).program)"


def said(words: list[str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=directory, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("directory", ["app", "releases/2027-01-31", "releases/20270201"])
def test_a_file_is_one_program_however_it_is_started_and_wherever_it_is(tmp_path: Path, directory: str):
    place = tmp_path / directory
    place.mkdir(parents=True)
    (place / "desk.py").write_text(CODE)
    ways = [
        ["desk.py"],
        ["-m", "desk"],
        [str(place / "desk.py")],
        ["-m", "cProfile", "-o", "profile", "desk.py"],
        ["-c", ASK.format(module="desk")],
        ["-c", LOADED.format(target="desk.py:main")],
        ["-c", LOADED.format(target="desk:main")],
    ]
    assert [said(way, place) for way in ways] == ["desk"] * len(ways)


def test_a_module_of_a_package_has_the_names_of_its_packages(tmp_path: Path):
    package = tmp_path / "2027" / "shop" / "desks"
    package.mkdir(parents=True)
    for directory in (package, package.parent, package.parent.parent):  # a deployment is not importable by its name
        (directory / "__init__.py").touch()
    for name in ("refunds.py", "__main__.py"):
        (package / name).write_text(CODE)
    root = package.parent.parent
    ways = [
        ["-m", "shop.desks.refunds"],
        ["shop/desks/refunds.py"],
        ["-c", LOADED.format(target="shop/desks/refunds.py:main")],
        ["-c", LOADED.format(target="shop.desks.refunds:main")],
    ]
    assert [said(way, root) for way in ways] == ["shop.desks.refunds"] * len(ways)
    assert [said(way, root) for way in (["-m", "shop.desks"], ["shop/desks"])] == ["shop.desks"] * 2


def test_code_in_an_archive_and_code_in_no_file(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "desks.pyz", "w") as archive:
        archive.writestr("__main__.py", CODE)
        archive.writestr("refunds.py", CODE)
    assert said(["desks.pyz"], tmp_path) == "desks"
    inside = "import sys; sys.path.insert(0, 'desks.pyz'); from refunds import main; print(main.program)"
    assert said(["-c", inside], tmp_path) == "refunds"
    assert said(["-c", CODE], tmp_path) == "__main__"


def test_a_program_may_be_declared():
    @agent(run_id="r-{given}", program="shop.desk")
    async def declared(run: Run, given: str) -> None: ...

    @agent(run_id="r-{given}")
    async def plain(run: Run, given: str) -> None: ...

    assert (declared.program, plain.program) == ("shop.desk", Path(__file__).stem)
    for name in ("", "a/b", "x" * 201):
        with pytest.raises(ContractError, match="cannot name a program"):
            agent(run_id="r-{given}", program=name)(declared.__wrapped__)


def test_a_file_with_any_name_has_a_program_that_can_be_stored(tmp_path: Path):
    for stem in ("caf\udce9", "x" * 250, "a b#c"):
        names = {"__file__": str(tmp_path / f"{stem}.py"), "__name__": "__main__"}
        exec("def main(): ...", names)
        program = program_of(names["main"])  # type: ignore[arg-type]  # a function, as the line above has made it
        assert 0 < len(program) <= 200, program
        assert program.encode()
