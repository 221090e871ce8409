"""Escalation policies: the versions in force, test cases, and a backtest over the recorded past."""
