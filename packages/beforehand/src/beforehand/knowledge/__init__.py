"""Facts, memory, conversations and the production loop. See `beforehand.observation`, `memory` and `conversation`."""
