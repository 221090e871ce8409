"""The deterministic simulator: many processes, a hostile world, one thread, one seed."""
