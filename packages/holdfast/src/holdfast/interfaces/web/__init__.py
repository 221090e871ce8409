"""The web face: an HTTP API and pages that work without scripts, both over the same functions as the command line."""
