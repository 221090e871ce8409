"""Exceptions: what the end of a call by an exception proves, and what an exception of agent code leaves on record."""
