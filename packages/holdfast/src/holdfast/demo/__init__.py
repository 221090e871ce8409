"""The demo: a refund desk under faults and kills, with Holdfast and without.

Start reading at `with_holdfast` and `without`, the two ways to write the desk. `services` are the
systems they call, `schedule` decides the faults, `world` and `witness` host and count outside the
workers, `contest` kills and restarts, `referee` judges, `main` is what `holdfast demo` calls.
"""
