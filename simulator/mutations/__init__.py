"""Planted bugs, and the program that plants each and lets the simulator find it."""
