"""What the viewer sees fits 80 columns and says what happened."""

import io

from rich.console import Console

from beforehand.demo.contest import Counts, Progress
from beforehand.demo.display import LEGEND, Scoreboard, final_table, money_line
from beforehand.demo.scenario import make_schedule
from beforehand.demo.witness import KillNow, WitnessedEffect

COUNTS = Counts(requested=96, once=69, twice=22, never=0, waiting=0, refused=5, misreported=3)
PRICES = dict.fromkeys(range(1, 25), 123_450)


def drawn(*renderables):
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(*renderables)
    return console.file.getvalue()


def test_the_scoreboard_follows_the_news():
    schedule = make_schedule(7)
    scoreboard = Scoreboard(7, schedule, PRICES)
    point = schedule.kills[0]
    for news in (
        WitnessedEffect("without", "mail", 3),
        WitnessedEffect("without", "mail", 3),
        WitnessedEffect("beforehand", "mail", 3),
        WitnessedEffect("without", "payments", 4),
        WitnessedEffect("without", "payments", 4),
        KillNow("beforehand", point.event, point.request),
        Progress("beforehand", 3),
        Progress("beforehand", 3),
    ):
        scoreboard.show(news)
    lines = drawn(scoreboard).splitlines()

    assert max(map(len, lines)) <= 80
    assert any(
        line.split()[:2] == ["without", "Beforehand"] and line.split()[-4:] == ["0/24", "4", "2", "0"] for line in lines
    )
    assert any(
        line.split()[:2] == ["with", "Beforehand"] and line.split()[-4:] == ["1/24", "1", "0", "1"] for line in lines
    )
    assert any("twice   without Beforehand  a mail for request-3 happened again" in line for line in lines)
    assert any("a refund for request-4 happened again: $1,234.50" in line for line in lines)
    assert any(
        "SIGKILL" in line and f"{point.service}" in line and f"request-{point.request}" in line for line in lines
    )


def test_the_final_table_has_every_count_in_80_columns():
    text = drawn(final_table({"without": COUNTS, "beforehand": COUNTS}, {"without": 9, "beforehand": 9}), LEGEND)
    assert max(map(len, text.splitlines())) <= 80
    row = next(line for line in text.splitlines() if line.startswith("without Beforehand"))
    assert row.split() == ["without", "Beforehand", "96", "69", "22", "0", "0", "5", "3", "9"]
    for name in (*Counts.__struct_fields__, "kills"):
        assert name in text


def test_money_is_counted_in_one_sentence():
    text = drawn(money_line({"without": 123_456, "beforehand": 0}))
    assert text == "$1,234.56 refunded twice without Beforehand, $0.00 with Beforehand.\n"
