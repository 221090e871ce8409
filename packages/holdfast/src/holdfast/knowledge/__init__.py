"""Facts, memory, conversations and the production loop. See `holdfast.observation`, `memory` and `conversation`.

This package reaches the run through `holdfast.agent.run_context` only.
"""
