"""The witness and the workers of the crash suite, with agents of their own."""

import pytest

from tests.crash.stage import Case, session_fixtures

witness, zygote = session_fixtures("tests.races.program")


@pytest.fixture
def case(tmp_path, witness, zygote):
    begun = Case(str(tmp_path), tmp_path / "case", witness, zygote)
    yield begun
    begun.end()
