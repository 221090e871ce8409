"""Authentication and authorization: accounts, sessions, tokens, providers, roles, and the guard of every request."""
