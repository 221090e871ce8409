"""The command line. Each file holds one group of commands and is imported when one of them is called."""
