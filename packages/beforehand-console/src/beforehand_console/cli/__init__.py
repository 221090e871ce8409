"""The commands that the console adds to `beforehand`, by entry points."""
