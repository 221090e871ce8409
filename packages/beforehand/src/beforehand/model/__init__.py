"""Beforehand."""
