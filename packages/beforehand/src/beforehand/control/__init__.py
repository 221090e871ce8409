"""Commands to runs: the use cases that change one, and the checks that each command passes first."""
