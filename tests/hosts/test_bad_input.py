"""Bad input for each host: an error of its own, a next step that works, and nothing sent. A row for each host."""

import json
from pathlib import Path

import pytest

from tests.hosts.children import Child, hosted
from tests.hosts.environments import ENVIRONMENT_OF, python_of

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("host", [host for host in ENVIRONMENT_OF if host != "loop"])
def test_bad_input_is_refused_and_nothing_is_sent(host: str, tmp_path: Path):
    parent = hosted(host, python_of(ENVIRONMENT_OF[host]))
    status, printed = Child(parent, tmp_path, "tests.hosts.bad_input").ended(600)
    assert status == 0, printed
    row: dict[str, str] = json.loads(printed.splitlines()[-1])
    assert len(row) > 10
    assert not {cell: wrong for cell, wrong in row.items() if wrong}
