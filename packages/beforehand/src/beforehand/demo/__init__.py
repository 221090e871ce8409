"""The demo: a refund desk under faults and kills, with Beforehand and without.

Start reading at `with_beforehand` and `without`, the two ways to write the desk. `services` are the
systems they call, `schedule` decides the faults, `world` and `witness` host and count outside the
workers, `contest` kills and restarts, `referee` judges, `main` is what `beforehand demo` calls.
"""
