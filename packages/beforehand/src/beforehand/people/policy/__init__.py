"""Escalation policies: the versions in force, and test cases."""
