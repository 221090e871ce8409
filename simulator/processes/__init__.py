"""The simulated processes: workers, other programs, and the nemesis that strikes them."""
