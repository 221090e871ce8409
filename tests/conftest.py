"""What every test shares: one seed that is printed, the long mode, and a place for a journal.

Tests are deterministic. A test that draws its own numbers takes them from the `seed` fixture, and Hypothesis
derives its examples from the test itself, so a failure repeats when the same command is given again. Only
`make soak` explores: there Hypothesis draws anew each time and prints the blob that repeats a failure.
"""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SEED = int(os.environ.get("HOLDFAST_SEED", "1"))

settings.register_profile("steady", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "soak",
    deadline=None,
    database=None,
    print_blob=True,
    max_examples=20_000,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run tests marked 'soak' at full length")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: a test that grows with the `soaking` fixture; what `make soak` runs")
    if config.getoption("--soak"):
        os.environ["HOLDFAST_SOAK"] = "1"
    settings.load_profile("soak" if _soaking() else "steady")


def pytest_report_header() -> list[str]:
    examples = "drawn anew" if _soaking() else "derived from each test"
    return [f"seed: {SEED} (HOLDFAST_SEED={SEED} repeats it); Hypothesis examples: {examples}"]


def pytest_collection_finish() -> None:
    """Let the collector leave alone what was collected: it lives until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def seed() -> int:
    """The number from which a test draws every other; set HOLDFAST_SEED to try another."""
    return SEED


@pytest.fixture(scope="session")
def soaking() -> bool:
    """Whether this is `make soak`; a test marked `soak` then runs at full length."""
    return _soaking()


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    """Where a test may create a SQLite journal: a directory of its own, nothing in it yet."""
    return tmp_path / "journal.db"


def _soaking() -> bool:
    return os.environ.get("HOLDFAST_SOAK") == "1"
