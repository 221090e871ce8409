"""The invariants: each checker reads the world, the durable records and what callers received."""
