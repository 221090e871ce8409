"""Plans as data: checking, dependencies on facts, and execution. The public names are in `holdfast.plans`.

This package reaches the run through `holdfast.agent.run_context` only.
"""
