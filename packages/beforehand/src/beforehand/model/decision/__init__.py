"""`decide`: the one pure function that says what happens next to an operation, and all that it reads.

Read in this order: `moves` (what it can answer), `situation` (what it is given beside the operation), `evidence` (what
the attempts prove together), `decide` (the rules in order), `send_rules` (before a send), `verify_rules` (reading the
world back).
"""
