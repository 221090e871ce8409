"""The witness and the workers of the crash suite, with agents of their own."""

import pytest

from tests.crash.stage import Case, Witness, Zygote


@pytest.fixture(scope="session")
def witness(tmp_path_factory):
    running = Witness(tmp_path_factory.mktemp("witness") / "requests.jsonl")
    yield running
    running.close()


@pytest.fixture(scope="session")
def zygote():
    running = Zygote("tests.races.program")
    yield running
    running.close()


@pytest.fixture
def case(tmp_path, witness, zygote):
    begun = Case(str(tmp_path), tmp_path / "case", witness, zygote)
    yield begun
    begun.end()
