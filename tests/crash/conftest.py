"""One witness and one zygote for all tests of a session (of a worker process of it, under xdist)."""

import pytest

from tests.crash.stage import Case, Witness, Zygote


@pytest.fixture(scope="session")
def witness(tmp_path_factory):
    running = Witness(tmp_path_factory.mktemp("witness") / "requests.jsonl")
    yield running
    running.close()


@pytest.fixture(scope="session")
def zygote():
    running = Zygote("tests.crash.program")
    yield running
    running.close()


@pytest.fixture
def new_case(tmp_path, witness, zygote):
    begun = []

    def begin(name):
        begun.append(Case(f"{tmp_path}-{name}", tmp_path / name, witness, zygote))
        return begun[-1]

    yield begin
    for case in begun:
        case.end()
