"""No measure of `scripts/house.py` exceeds its bound. `make house` prints which bounds can be lowered."""

from pathlib import Path

from scripts.house import BOUNDS, bounded, keyed_write, lines, port_methods


def test_no_measure_exceeds_its_bound():
    measures = list(bounded())
    assert {measure.name for measure in measures} == set(BOUNDS), "each distribution has one bound in scripts/house.py"
    above = [
        f"{measure.name}: {measure.value:,} of {BOUNDS[measure.name]:,}"
        for measure in measures
        if measure.value > BOUNDS[measure.name]
    ]
    assert not above, "remove a feature or a copy; a bound rises only where an issue says so:\n" + "\n".join(above)


def test_every_line_of_a_file_counts(tmp_path: Path):
    source = tmp_path / "sample.py"
    source.write_text('"""Text."""\n\n# a comment\nimport re\n')
    assert lines("sample", [source]) == ("lines of sample", 4, 1)


def test_the_methods_of_protocols_count():
    source = "class Value:\n    def x(self): ...\nclass Port(Base, Protocol):\n    def y(self): ...\n    async def z(self): ...\n"
    assert port_methods(source) == ["y", "z"]


def test_a_keyed_write_asks_for_a_decision_and_commits():
    functions = {function for _, function in keyed_write()}
    assert {"decide", "SqliteJournal.commit"} <= functions
