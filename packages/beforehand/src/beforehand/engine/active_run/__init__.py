"""A run as this process drives it, from a claim of the run to its end, suspension or loss."""
