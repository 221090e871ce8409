"""A drawn night is the same each time, and the monitors find what was planted in it."""

import pytest

from examples import night


@pytest.mark.parametrize("seed", [1, 2])
def test_the_monitors_find_what_was_planted(seed: int) -> None:
    drawn = night.drawn(seed, 600)
    assert len(drawn.planted) == 12
    assert drawn.planted - drawn.found == set()
    assert len(drawn.found - drawn.planted) <= 3


def test_a_night_follows_from_its_seed() -> None:
    assert night.drawn(3, 300) == night.drawn(3, 300)


def test_the_page_counts_what_was_found_and_missed(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [
        night.Night({("cost", "writer"), ("refusals", "orders")}, {("cost", "writer"), ("cost", "desk")}, 10),
        night.Night({("cost", "writer")}, {("cost", "writer")}, 10),
    ]
    page = night.page(drawn, range(1, 3), 1)
    assert "| of them found (recall) | 66.7% |" in page
    assert "| of them planted (precision) | 66.7% |" in page
    assert "| cost | 2 | 2 | 1 |" in page
    assert night.main(["--nights", "1", "--runs", "300", "--seed", "4"]) in {0, 1}
    assert "# How well the monitors find silent failures" in capsys.readouterr().out
