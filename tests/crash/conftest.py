"""One witness and one zygote for all tests of a session (of a worker process of it, under xdist).

Tests of desks have a program for each module, `PROGRAM`, which lives on a fresh journal as often as they ask for one.
"""

import pytest

from tests.crash import desks
from tests.crash.forks import Forks
from tests.crash.stage import Case, session_fixtures

witness, zygote = session_fixtures("tests.crash.program")


@pytest.fixture
def new_case(tmp_path, witness, zygote):
    begun = []

    def begin(name):
        begun.append(Case(f"{tmp_path}-{name}", tmp_path / name, witness, zygote))
        return begun[-1]

    yield begin
    for case in begun:
        case.end()


@pytest.fixture(scope="module")
def lives(request):
    program = Forks(request.module.PROGRAM)
    yield program
    program.end()


@pytest.fixture
def fresh(lives, tmp_path):
    return lambda: desks.Case(lives, tmp_path / "case")
