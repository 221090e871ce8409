"""The engine performs what the model decides, for all runs of one process. This is the map of its rooms.

Read the core in this order, about 5,100 lines; everything else serves it:

1. `model/contract.py`, `model/records/operation.py`, `model/operation.py`: what a tool promises, what is recorded
   about one operation, and the state that these records make.
2. `model/decision/`: `moves`, `situation`, `evidence`, `decide`, `send_rules`, `verify_rules`. The pure function that
   decides.
3. `model/transitions.py`, `journal/port.py`: the table of legal records, and the journal that remembers them.
4. `executor.py`, `situation.py`, `operation_driver.py`, `invoke.py`, `commands.py`: the loop that performs one move
   after another, the builder of its situation, what performers get, the one call into the world, and commands from
   outside.

The rooms:

- One operation: `executor`, `situation`, `operation_driver` (and what its process found out), `recorded_operation` (the
  same for readers), `invoke`, `calls` (time limits, and calls that outlive their attempts),
  `waiting`, `verification` (and contradictions), `approvals` (people, and the policy of the app), `deferred` (outcomes
  that arrive later), `conflicts` (business keys, repeats, forks and pending effects), `late_reports`, `previous_owner`
  (attempts of a process that is gone).
- Exceptions of tools: `exceptions/`: `classify`, `table`, `http`, `call_end`.
- One run: `run_start`, `run_driver` (it stops for the reasons in `model/stop_reasons.py`), `suspension` (and no lost
  wake-ups), `active_run/` (`run`, `log`, `replay`, `scopes`, and `waiters`, which decides that a run is suspended),
  `sealing` (steps that come too late), `journaled` (the order of a step that is recorded once), `messages`,
  `durable_waits` (sleep, events, time limits), `children` (starting and joining child runs), `relatives` (the notices
  between a run and its children), `claims` (effects that a run claims and nothing proves).
- Transactions: `transactions` (boundaries in agent code, and closing one from its records).
- One process: `process` (what its runs share), `engine` (open, close, lease), `recovery` (abandoned and due runs),
  `crash_isolation`, `breaker`, `caches`, `housekeeping`, `outbox`, `queueing` (slots of queues),
  `call_limits` (permits of calls), `shared_budgets`, `tree_budgets`, `commands`, `settings`.
- The edges: `environment` (clock, chance, threads, crash points), `tool_protocol` (what the engine needs of a tool),
  `steps` (what agent code calls), `current_operation` (what a tool can learn), `masking` (secrets).

An operation comes in through `steps`, becomes an `OperationDriver`, and is driven by `executor.drive` in the same way
for first attempts, retries and recovery.
`situation.py` alone builds what `decide` reads and alone asks it, also for readers that drive nothing
(`engine/recorded_operation.py`). Performers take an `OperationDriver`. None of them imports `engine` or `run_driver`.
"""
