"""Plans as data: checking, dependencies on facts, and execution. The public names are in `beforehand.plans`."""
