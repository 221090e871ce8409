"""The commands that the console adds to `holdfast`, by entry points."""
