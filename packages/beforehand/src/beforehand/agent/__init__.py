"""Agents and tools: declarations, calls and their outcomes."""
