"""Escalation policies: the versions that ruled, test cases, and a backtest over the recorded past."""
