"""The wheel holds the product and nothing else, and a program runs on it without the repository."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
NEVER_INSTALLED = {"simulator", "studies", "tests", "bench", "scripts", "examples"}
PROGRAM = """
import asyncio
from holdfast import Holdfast, Run, agent, tool

@tool
async def refund(cents: int) -> str:
    return f"refunded {cents}"

@agent
async def desk(run: Run, cents: int) -> str:
    return await refund(cents)

async def main() -> None:
    async with Holdfast("desk.db", agents=[desk]) as app:
        print(await app.run(desk, 900, run_id="one"))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the wheel brings, as pip would lay it out."""
    place = tmp_path_factory.mktemp("wheel")
    wheel = next(WheelBuilder(str(ROOT / "packages" / "holdfast")).build(directory=str(place), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")
    return place / "installed"


def on_the_wheel(installed: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where `holdfast` comes from the wheel: without `site`, the editable installation is not seen."""
    path = f"{installed}:{sysconfig.get_path('purelib')}"
    return subprocess.run(
        [sys.executable, "-S", *command],
        check=False,
        cwd=cwd,
        env={"PYTHONPATH": path, "PATH": ""},
        capture_output=True,
        text=True,
    )


def test_what_is_for_this_repository_is_not_installed(installed: Path):
    tops = {path.name for path in installed.iterdir()}
    assert {name for name in tops if not name.endswith(".dist-info")} == {"holdfast"}
    inside = {path.name for path in installed.rglob("*") if path.is_dir()}
    assert not inside & NEVER_INSTALLED - {"tests"}


def test_a_program_runs_on_it(installed: Path, tmp_path: Path):
    (tmp_path / "desk.py").write_text(PROGRAM)
    ran = on_the_wheel(installed, "desk.py", cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("refunded 900\n", "")
    listed = on_the_wheel(installed, "-m", "holdfast", "--journal", "desk.db", "ps", cwd=tmp_path)
    assert "one" in listed.stdout, listed.stderr


def test_nothing_that_is_installed_imports_what_is_not(installed: Path):
    modules = ", ".join(
        f"'{'.'.join(path.relative_to(installed).with_suffix('').parts)}'"
        for path in sorted((installed / "holdfast").rglob("*.py"))
        if path.name != "__main__.py" and "templates" not in path.parts
    )
    program = f"import importlib, sys\nfor name in ({modules}): importlib.import_module(name)\n"
    program += f"print(sorted(set({sorted(NEVER_INSTALLED)!r}) & set(sys.modules)))"
    ran = on_the_wheel(installed, "-c", program, cwd=installed)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr[-2000:]
