"""Facts, memory, conversations and the production loop. See `holdfast.observation`, `memory` and `conversation`."""
