"""`beforehand policy calibrate`: thresholds in a policy's file, proposed and applied."""

from tests.cli.lab import Lab

POLICY = """
name: desk
thresholds:
  sure: {start: 0.8, least: 0.6, most: 0.95, step: 0.02, width: 0.1}
rules:
  - {name: sure, when: "confidence >= threshold.sure", then: sample, rate: 0.2}
"""


def test_without_findings_it_stays(beforehand: Lab):
    beforehand.write("policy.yaml", POLICY)
    assert beforehand("policy", "check", "policy.yaml").status == 0
    assert beforehand("run", "desk.py:desk", beforehand.ticket("17")).status == 0
    said = beforehand("policy", "calibrate", "policy.yaml")
    assert said.status == 0
    assert "sure stays at 0.8: 0 and 0 cases, and a move takes 30" in said.words
    found = beforehand("policy", "calibrate", "policy.yaml", "--apply", "--by", "anna", "--json").json
    assert (found["proposals"][0]["judgement"]["direction"], found["moved"]) == ("stay", [])
    assert beforehand("policy", "calibrate", "policy.yaml", "other.yaml").status == 2
    assert beforehand("policy", "calibrate").status == 2, "this project has no policy"


def test_a_threshold_outside_its_bounds_is_refused(beforehand: Lab):
    beforehand.write("policy.yaml", POLICY.replace("start: 0.8", "start: 0.99"))
    said = beforehand("policy", "check", "policy.yaml")
    assert said.status == 2
    assert "outside 0.6 to 0.95" in said.words
