"""The simulated people: what they answer, and the checks that each answer counts once."""
