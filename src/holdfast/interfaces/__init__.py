"""Holdfast."""
