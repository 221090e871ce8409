"""`require` in a policy file: how the people who approve have to be known."""

from datetime import timedelta
from pathlib import Path

import pytest

from beforehand.model.policy import Ruling, terms
from beforehand.people.policy.judge import PolicyError
from beforehand.people.policy.policy_files import read_policy
from beforehand.policies import Gate, Require, strictest

POLICY = """
rules:
  - name: large
    when: amount > 50000
    then: {then}
    require: {require}
"""


def written(tmp_path: Path, require: str, then: str = "ask") -> Path:
    path = tmp_path / "money.yaml"
    path.write_text(POLICY.format(require=require, then=then))
    return path


def test_it_is_read_with_its_duration(tmp_path: Path):
    (rule,) = read_policy(written(tmp_path, "{fresh_sign_in: 10m, person: true}")).rules
    assert rule.require == Require(fresh_sign_in=timedelta(minutes=10), person=True)


@pytest.mark.parametrize(
    ("require", "then", "says"),
    [
        ("{fresh: 10m}", "ask", "require.fresh: unknown field"),
        ("{fresh_sign_in: soon}", "ask", "require.fresh_sign_in: 'soon' is not a duration"),
        ("{fresh_sign_in: 0m}", "ask", "it takes some time to answer"),
        ("{person: true}", "auto", "require: `auto` asks no person"),
        ("always", "ask", "require"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, require: str, then: str, says: str):
    with pytest.raises(PolicyError) as refused:
        read_policy(written(tmp_path, require, then))
    assert says in str(refused.value)


def test_of_gate_and_policy_the_stricter_holds():
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    gate = Gate("true", require=Require(fresh_sign_in=hour))
    ruling = Ruling("ask", "large", require=Require(fresh_sign_in=minute, person=True))
    assert terms(gate, ruling).require == Require(fresh_sign_in=minute, person=True)
    assert terms(gate, None).require == Require(fresh_sign_in=hour)
    assert terms(None, ruling, escalated=True).require == ruling.require
    assert terms(None, None).require is strictest(None, None) is None
    assert gate.with_other(Gate("cents > 1", require=Require(person=True))).require == Require(hour, person=True)
