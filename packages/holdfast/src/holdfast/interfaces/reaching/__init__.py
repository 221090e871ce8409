"""Reaching people: the channels, what a notice says on each of them, and the runs that send it."""
