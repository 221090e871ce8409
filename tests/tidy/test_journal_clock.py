"""What is stored is dated by the journal's clock: a process's own may be wrong where many machines share a journal."""

import re

from tests.tidy.tree import ROOT

OWN_CLOCK = re.compile(r"\b_?clock\.wall_ms\b|SystemClock\(\)\.wall_ms|host import .*\bwall_ms\b")
DISPLAY = re.compile(
    r"/cli/|/journal/|/testing/|/demo/"
    r"|/engine/housekeeping\.py|/loop/route\.py|/telemetry/(opentelemetry|prometheus|following)\.py"
)
"""What shows times, a store itself and its kit for tests, and figures that a process keeps about itself."""


def uses(name: str, text: str) -> list[str]:
    """Lines that read the clock of the process where the journal's is due."""
    if DISPLAY.search(name):
        return []
    return [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if OWN_CLOCK.search(line)]


def test_only_what_is_shown_is_read_from_the_clock_of_the_process() -> None:
    sources = sorted(ROOT.glob("packages/*/src/**/*.py"))
    assert len(sources) > 300
    stray = [use for path in sources for use in uses(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))]
    assert not stray, f"take it from journal.clock(), or from the engine's wall_ms(): {stray}"


def test_a_stored_time_by_the_clock_of_the_process_is_refused() -> None:
    assert uses("src/engine/waiting.py", "due = 1\ndue = process.environment.clock.wall_ms() + ms") == [
        "src/engine/waiting.py:2"
    ]
    assert uses("src/engine/waiting.py", "due = process.journal.clock().wall_ms + ms") == []
