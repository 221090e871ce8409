"""The journal on SQLite: one file, many processes of one machine."""
