"""The garbage collector of the interpreter belongs to the application: an app tunes it only where it is told to."""

from pathlib import Path

import pytest

from tests import forked


@pytest.mark.parametrize(
    "action",
    [
        pytest.param("left_alone", id="it is left alone by default"),
        pytest.param("tuned", id="it is tuned while the app is open"),
        pytest.param("several", id="the last of several apps restores it"),
        pytest.param("frozen_before", id="what the application froze stays frozen"),
        pytest.param("not_opened", id="an app that could not be opened leaves it alone"),
        pytest.param("commands", id="a command that may have many live runs tunes it and one of a single run does not"),
    ],
)
def test_an_app_tunes_it_where_it_is_told_to(tmp_path: Path, action: str):
    ended = forked.run(["-m", "tests.unit.engine.collecting", action, str(tmp_path)], cwd=forked.ROOT)
    assert ended.returncode == 0, ended.stderr
