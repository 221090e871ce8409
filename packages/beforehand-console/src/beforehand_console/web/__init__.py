"""The pages and the HTTP API, over the same functions as the command line."""
