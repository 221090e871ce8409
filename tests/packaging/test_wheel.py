"""Both wheels hold what they say and nothing else, and work in environments of their own.

Each environment is fresh: a Python without this repository, with the requirements of the development environment beside
it. One has the runtime alone, the other has the console, too.
"""

import email
import http.cookiejar
import json
import os
import re
import subprocess
import sysconfig
import tomllib
import urllib.request
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "packages" / "beforehand"
NEVER_INSTALLED = {"simulator", "tests", "bench", "scripts", "examples"}
PLAYER = ROOT / "tests" / "docs" / "play.py"
TUTORIAL = ROOT / "docs" / "tutorial" / "index.md"
ASKING = """
from beforehand import Beforehand, Run, RunSuspended, agent, tool

@tool(gate="cents > 5000")
def refund(cents: int) -> str:
    return f"refunded {cents}"

@agent
async def desk(run: Run, cents: int) -> str:
    return await refund(cents)

with Beforehand("beforehand.db", agents=[desk]) as app:
    try:
        print(app.run(desk, 9000, run_id="one"))
    except RunSuspended:
        print("asked")
"""

PUBLISHED = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "refund-rules"
version = "2.1"

[project.entry-points."beforehand.policies"]
refunds = "refund_rules:policy_file"
strict = "refund_rules:STRICT"

[tool.hatch.build.targets.wheel]
packages = ["refund_rules"]
""",
    "refund_rules/__init__.py": """
from pathlib import Path

from beforehand.people import Policy, Rule

STRICT = Policy("strict", (Rule("all", "true", "refuse"),))

def policy_file():
    return Path(__file__).with_name("refunds.yaml")
""",
    "refund_rules/refunds.yaml": """
name: refunds
rules:
  - {name: small, when: arguments.cents < 500, then: auto}
default: ask
""",
}
"""The source of a distribution of another publisher."""


class Installed:
    """An environment with some of our wheels."""

    def __init__(self, place: Path) -> None:
        venv.create(place, symlinks=True, with_pip=False)
        self.bin = place / "bin"
        self.packages = next((place / "lib").glob("python*/site-packages"))
        (self.packages / "requirements.pth").write_text(f"{_requirements(place / 'requirements')}\n")

    def install(self, source: Path) -> None:
        """Lay it out as pip would that is given a directory: its files, where they are from, and its commands."""
        wheel = built(source, self.bin.parent)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.packages)
        distribution, version = wheel.name.split("-")[:2]
        information = self.packages / f"{distribution}-{version}.dist-info"
        (information / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {}}))
        declared = ConfigParser(delimiters=("=",))
        declared.read(information / "entry_points.txt")
        for name, target in declared.items("console_scripts") if declared.has_section("console_scripts") else ():
            module, _, function = target.partition(":")
            command = self.bin / name
            command.write_text(f"#!{self.bin / 'python'}\nfrom {module} import {function}\n{function}()\n")
            command.chmod(0o755)

    def __call__(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            check=False,
            cwd=cwd,
            env=self.environ,
            capture_output=True,
            text=True,
        )

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BEFOREHAND"))}
        return kept | {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}


def built(source: Path, place: Path) -> Path:
    """The wheel of the distribution in this directory."""
    return Path(next(WheelBuilder(str(source)).build(directory=str(place), versions=["standard"])))


def _requirements(place: Path) -> Path:
    """What the development environment holds, without our own distributions and their entry points."""
    place.mkdir()
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if not found.name.startswith(("beforehand", "_beforehand")):
            (place / found.name).symlink_to(found)
    return place


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("wheels")
    return {name: built(RUNTIME.with_name(name), place) for name in ("beforehand", "beforehand-console")}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the runtime alone."""
    environment = Installed(tmp_path_factory.mktemp("environments") / "runtime")
    environment.install(RUNTIME)
    return environment


@pytest.fixture(scope="module")
def with_policies(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the runtime and `refund-rules`."""
    source = tmp_path_factory.mktemp("refund-rules")
    (source / "refund_rules").mkdir()
    for name, text in PUBLISHED.items():
        (source / name).write_text(text)
    environment = Installed(tmp_path_factory.mktemp("environments") / "policies")
    environment.install(RUNTIME)
    environment.install(source)
    return environment


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the runtime and the console."""
    environment = Installed(tmp_path_factory.mktemp("environments") / "both")
    environment.install(RUNTIME)
    environment.install(RUNTIME.with_name("beforehand-console"))
    return environment


@pytest.mark.parametrize(
    ("name", "package"), [("beforehand", "beforehand"), ("beforehand-console", "beforehand_console")]
)
def test_a_wheel_holds_its_package_and_nothing_else(wheels: dict[str, Path], name: str, package: str):
    with zipfile.ZipFile(wheels[name]) as archive:
        files = [Path(one) for one in archive.namelist()]
    assert {file.parts[0] for file in files if not file.parts[0].endswith(".dist-info")} == {package}
    assert not {part for file in files for part in file.parent.parts} & NEVER_INSTALLED
    assert any(file.name == "py.typed" for file in files)
    assert any(file.name == "LICENSE" for file in files)


def test_the_console_brings_its_pages(wheels: dict[str, Path]):
    with zipfile.ZipFile(wheels["beforehand-console"]) as archive:
        files = set(archive.namelist())
    source = ROOT / "packages" / "beforehand-console" / "src"
    pages = {
        path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in {".html", ".css", ".js"}
    }
    assert pages
    assert pages <= files


def test_the_console_needs_the_runtime_of_its_own_version(wheels: dict[str, Path]):
    with zipfile.ZipFile(wheels["beforehand-console"]) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        stated = email.message_from_bytes(archive.read(metadata))
    assert f"beforehand[webhooks]=={stated['Version']}" in stated.get_all("Requires-Dist", [])


def test_the_tutorial_runs_on_the_runtime_alone(runtime: Installed, tmp_path: Path):
    played = runtime("python", "-W", "error", str(PLAYER), str(TUTORIAL), cwd=tmp_path)
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"


def test_people_are_asked_and_answer_with_the_runtime_alone(runtime: Installed, tmp_path: Path):
    (tmp_path / "desk.py").write_text(ASKING)
    assert runtime("python", "desk.py", cwd=tmp_path).stdout == "asked\n"
    assert "one/refund#1" in runtime("beforehand", "inbox", cwd=tmp_path).stdout
    shown = re.search(
        r"--shown ([0-9a-f]{12})", runtime("beforehand", "answer", "one/refund#1", "yes", cwd=tmp_path).stderr
    )
    assert shown is not None
    answered = runtime("beforehand", "answer", "one/refund#1", "yes", "--shown", shown[1], "--by", "anna", cwd=tmp_path)
    assert answered.returncode == 0, answered.stderr
    assert runtime("python", "desk.py", cwd=tmp_path).stdout == "refunded 9000\n"
    (tmp_path / "rules.yaml").write_text("name: refunds\nrules:\n  - {name: all, when: 'true', then: ask}\n")
    assert "no faults were found" in runtime("beforehand", "policy", "check", "rules.yaml", cwd=tmp_path).stdout
    assert runtime("beforehand", "resolve", "--help", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (("serve",), "beforehand serve"),
        (("accounts", "list"), "beforehand accounts"),
        (("notices",), "beforehand notices"),
        (("figures", "--json"), "beforehand figures"),
        (("plant", "cases.jsonl"), "beforehand plant"),
        (("shadow-reviews",), "beforehand shadow-reviews"),
        (("inbox", "--health"), "beforehand inbox --health"),
        (("policy", "calibrate", "rules.yaml"), "beforehand policy calibrate"),
        (("policy", "calibrate"), "beforehand policy calibrate"),
        (("worker", "desk.py:desk", "--reach", "reach.yaml"), "a notification channel (reach)"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_without_the_console_its_commands_say_how_to_install_it(
    runtime: Installed, tmp_path: Path, command: tuple[str, ...], wanted: str
):
    (tmp_path / "desk.py").write_text(ASKING)
    (tmp_path / "rules.yaml").write_text("name: refunds\nrules:\n  - {name: all, when: 'true', then: ask}\n")
    runtime("python", "desk.py", cwd=tmp_path)
    said = runtime("beforehand", *command, cwd=tmp_path)
    assert said.returncode == 2, said.stderr
    assert f"{wanted} needs beforehand-console, which is not installed" in said.stdout + said.stderr
    assert f"pip install {RUNTIME.with_name('beforehand-console')}" in said.stdout + said.stderr


def test_a_distribution_of_another_publisher_brings_policies(with_policies: Installed, tmp_path: Path):
    checked = with_policies("beforehand", "policy", "check", "installed:refunds", cwd=tmp_path)
    assert checked.stdout.startswith("installed:refunds: no faults were found"), checked.stderr
    (tmp_path / "pyproject.toml").write_text('[tool.beforehand]\npolicy = "installed:strict"\n')
    assert "strict@" in with_policies("beforehand", "policy", "show", cwd=tmp_path).stdout
    (tmp_path / "desk.py").write_text(
        ASKING.replace("agents=[desk]", 'agents=[desk], policy="installed:refunds"').replace(
            '"cents > 5000"', '"cents > 99999"'
        )
    )
    assert with_policies("python", "desk.py", cwd=tmp_path).stdout == "asked\n"
    missing = with_policies("beforehand", "policy", "check", "installed:refund", cwd=tmp_path)
    assert missing.returncode == 2
    said = " ".join(missing.stderr.split())
    assert "no installed distribution has a policy named refund" in said
    assert "installed policies: refunds, strict" in said


def test_nothing_of_the_runtime_imports_what_is_not_installed(runtime: Installed, tmp_path: Path):
    modules = sorted(
        ".".join(path.relative_to(runtime.packages).with_suffix("").parts)
        for path in (runtime.packages / "beforehand").rglob("*.py")
        if path.name != "__main__.py" and path.parent.name != "hosts"  # an adapter stands on its framework
    )
    program = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
    program += f"print(sorted(set({sorted(NEVER_INSTALLED | {'beforehand_console'})}) & set(sys.modules)))"
    ran = runtime("python", "-c", program, cwd=tmp_path)
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr[-2000:]


def test_an_adapter_without_its_framework_says_what_to_install(runtime: Installed, tmp_path: Path):
    # That of Pydantic AI imports its framework when it is used.
    for name in ("crewai", "google_adk", "langchain", "openai_agents"):
        ran = runtime("python", "-c", f"import beforehand.hosts.{name}", cwd=tmp_path)
        assert (ran.returncode, f"pip install '{name.replace('_', '-')}<" in ran.stderr) == (1, True), name


def test_a_new_project_names_where_its_runtime_came_from_and_works_with_what_is_there(
    runtime: Installed, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    written = runtime("beforehand", "init", "refunds", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    place = tmp_path / "refunds"
    (stated,) = tomllib.loads((place / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"pip install '{stated}' pytest" in written.stdout
    assert f"pip install '{stated}' pytest" in (place / "README.md").read_text()
    wanted = Requirement(stated)
    assert (wanted.name, wanted.extras) == ("beforehand", {"openai"})
    source = Path(unquote(urlsplit(wanted.url or "").path))
    assert source == RUNTIME
    environment = Installed(tmp_path_factory.mktemp("environments") / "project")
    environment.install(source)
    tested = environment("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=place)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_inbox_is_served_in_a_browser_with_both(both: Installed, tmp_path: Path):
    (tmp_path / "desk.py").write_text(ASKING)
    assert both("python", "desk.py", cwd=tmp_path).stdout == "asked\n"
    command = [both.bin / "beforehand", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=both.environ, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            link = re.search(r"http://\S+", server.stderr.readline())
            assert link is not None
            cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            with urllib.request.build_opener(cookies).open(link[0], timeout=30) as page:
                assert page.status == 200
                assert "one/refund#1" in page.read().decode()
        finally:
            server.terminate()


def test_the_commands_of_the_console_are_there_with_both(both: Installed, tmp_path: Path):
    (tmp_path / "desk.py").write_text(ASKING)
    both("python", "desk.py", cwd=tmp_path)
    added = both("beforehand", "accounts", "add", "anna", "--role", "admin", cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    assert "anna" in both("beforehand", "accounts", "list", cwd=tmp_path).stdout
    assert both("beforehand", "inbox", "--health", cwd=tmp_path).returncode in {0, 1}
    assert both("beforehand", "doctor", cwd=tmp_path).returncode == 0


def test_a_journal_of_the_console_is_read_without_it(both: Installed, runtime: Installed, tmp_path: Path):
    (tmp_path / "desk.py").write_text(ASKING)
    both("python", "desk.py", cwd=tmp_path)
    both("beforehand", "accounts", "add", "anna", "--role", "admin", cwd=tmp_path)
    examined = runtime("beforehand", "doctor", cwd=tmp_path)
    assert examined.returncode == 0, examined.stderr
    assert "one" in runtime("beforehand", "ps", cwd=tmp_path).stdout
