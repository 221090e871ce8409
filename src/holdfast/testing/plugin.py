"""The pytest plugin: `pytest` loads it when holdfast is installed."""

from __future__ import annotations
