"""Rules of monitors, metrics, and the fields of `queues.yaml` are named on the page that explains them."""

from pathlib import Path
from typing import get_args, get_type_hints

from beforehand.inspect.monitors.rules import RULES
from beforehand.queues.limits import DeclaredLimits
from beforehand.telemetry import Prometheus

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def page(name: str) -> str:
    return (HOW_TO / name).read_text(encoding="utf-8")


def test_every_rule_of_the_monitors_is_on_the_page():
    text = page("find-silent-failures.md")
    assert [rule for rule in RULES if f"| `{rule}` |" not in text] == []


def test_every_metric_is_on_the_page():
    text, measured = page("telemetry.md"), Prometheus()
    gauges = [family.name for family in measured.describe()]
    counters = [
        f"{family.name}_total" if family.type == "counter" else family.name for family in measured.registry.collect()
    ]
    # The page shortens a family of names: `beforehand_queue_waiting`, `_running`.
    named = {name for name in (*gauges, *counters) if any(f"`{name[at:]}`" in text for at in places_in(name))}
    assert {*gauges, *counters} - named == set()


def places_in(name: str) -> list[int]:
    return [0, *(at for at, sign in enumerate(name) if sign == "_")]


def test_every_field_of_the_limits_is_on_a_page():
    text = page("queues.md") + page("budgets.md")
    fields = {
        f"{section}: {field.removesuffix('_ms')}"
        for section, kind in get_type_hints(DeclaredLimits).items()
        for field in get_args(kind)[1].__struct_fields__
    }
    assert {one for one in fields if one.partition(": ")[2] not in text} == set()
