"""A simulated year of decisions with reviewers who tire: what it costs to ask always, never, or about a part.

The reviewers are a model, not a measurement. `python -m studies.year` runs it with your own numbers.
"""
