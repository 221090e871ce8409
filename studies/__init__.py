"""Studies: programs that answer one question about the product, and pages that tell the answer. Never installed."""
