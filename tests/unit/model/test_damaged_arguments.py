"""Stored arguments that are damaged are an error that names the parameter, never a crash of the reader."""

import pytest

from beforehand.errors import ArgumentError
from beforehand.model.canonical.encode import restore


@pytest.mark.parametrize(
    "stored",
    [
        b'{"when":{"$datetime":"yesterday"}}',
        b'{"when":{"$int":"twelve"}}',
        b'{"when":{"$decimal":"1.2.3"}}',
        b'{"when":{"$timedelta":"1e400"}}',
        b'{"when":{"$uuid":5}}',
        b'{"when":{"$bytes":"a"}}',
        b'{"when":{"$map":[1]}}',
        b'{"when":{"$set":[[1]]}}',
        b'{"when":{"$object":5}}',
        b'{"when":[{"$date":7}]}',
    ],
)
def test_a_damaged_stored_form_names_its_parameter(stored: bytes):
    with pytest.raises(ArgumentError, match="when: its stored form cannot be read") as damaged:
        restore(stored, {"when": object})
    assert damaged.value.parameter == "when"
    assert "beforehand verify" in damaged.value.next_step
    assert damaged.value.known == "it is on record as it was; the tool was not called."
