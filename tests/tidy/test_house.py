"""The measures of `scripts/house.py` only fall: a bound that is lower now is lowered with the change."""

from scripts.house import MEASURES, ROOT, imports, keyed_write, largest_cycle, table

LOOSE = 1.15  # a bound further above holds nothing; a write takes one of two ways to the disk (151 or 169 functions)


def test_no_measure_of_the_house_grows():
    measured = {one: one.measure() for one in MEASURES}
    grown = [f"{one.name}: {value:,}, at most {one.bound:,}" for one, value in measured.items() if value > one.bound]
    assert not grown, "make it smaller, or say in the change why the bound rises:\n" + "\n".join(grown)
    loose = [f"{one.name}: {value:,} of {one.bound:,}" for one, value in measured.items() if one.bound > value * LOOSE]
    assert not loose, "lower these bounds in scripts/house.py:\n" + "\n".join(loose)


def test_the_table_for_contributors_is_current():
    assert table() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "paste what `table()` gives"


def test_the_measures_measure():
    edges, cycle = imports(), largest_cycle()
    assert "holdfast.journal.port" in edges["holdfast.journal.run_log"]
    assert all(edges[name] & cycle for name in cycle), "each depends on another one"
    assert any(function == "decide" for _, function in keyed_write())
