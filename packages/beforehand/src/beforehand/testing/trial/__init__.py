"""Trials: how often an agent reaches the end state that its caller wants, with and without faults."""
