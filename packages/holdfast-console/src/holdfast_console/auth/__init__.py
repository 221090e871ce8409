"""Who may: accounts, sessions, tokens, providers and roles, and the guard in front of every page and call."""
