"""Exceptions: the verdict on a call that ended by one, and the record of an exception of agent code."""
