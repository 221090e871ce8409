"""The simulated agents and their tools."""
