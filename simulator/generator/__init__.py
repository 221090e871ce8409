"""From a seed to a plan of one simulation."""
