"""What the generated reference says beside the code: which classes a user meets, what each setting is for, what to do.

Every name here is checked against the code when the pages are made: one that is gone, or one too few, is an error.
"""

from typing import Final

# Section -> the dotted names whose docstrings and signatures are shown, and the members that are the engine's business.
SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Apps and runs": ("Holdfast", "agent", "Run", "RunSuspended"),
    "Tools": ("tool", "Key", "Natural", "Once", "Secret", "current_operation"),
    "Handlers and verdicts": ("Operation", "Verdict", "Happened", "DidNotHappen", "CannotTell", "Conflict"),
    "Outcomes": ("Outcome", "Receipt"),
    "Errors": (
        "HoldfastError",
        "NotSent",
        "Rejected",
        "Ambiguous",
        "Deferred",
        "OperationFailed",
        "TransactionAborted",
    ),
}
BESIDE: Final[dict[str, tuple[str, ...]]] = {
    "What `@tool` gives": (
        "holdfast.agent.tool.Tool",
        "holdfast.agent.handlers.Handlers",
        "holdfast.agent.companions.Compensate",
        "holdfast.agent.companions.Confirm",
    ),
    "What `@agent` gives": ("holdfast.agent.agent.Agent",),
    "What `current_operation()` gives": ("holdfast.engine.current.CurrentOperation",),
    "What an app gives": (
        "holdfast.app.Done",
        "holdfast.app.RunHandle",
        "holdfast.sync.SyncHoldfast",
        "holdfast.interfaces.service.Service",
        "holdfast.interfaces.service.Applied",
        "holdfast.interfaces.service.Delivered",
        "holdfast.engine.awaiting.Arrival",
    ),
    "What a run gives": (
        "holdfast.agent.transactions.Transaction",
        "holdfast.agent.transactions.Held",
        "holdfast.agent.run.Decide",
        "holdfast.agent.model_calls.ToolBox",
        "holdfast.model.outcome.Basis",
    ),
    "`holdfast.policies`": ("holdfast.policies.Retry", "holdfast.policies.Budget"),
    "`holdfast.plans`": (
        "holdfast.model.plan.Plan",
        "holdfast.model.plan.PlanStep",
        "holdfast.model.plan.Call",
        "holdfast.agent.course.PlanResult",
        "holdfast.agent.course.Chosen",
        "holdfast.agent.planning.check_plan",
        "holdfast.agent.plan_schema.plan_schema",
    ),
    "`holdfast.observation`": (
        "holdfast.agent.observing.Facts",
        "holdfast.agent.production.Need",
        "holdfast.agent.production.ProductionLoop",
        "holdfast.model.facts.Fact",
        "holdfast.model.facts.Guess",
        "holdfast.model.facts.Stakes",
        "holdfast.model.facts.Correction",
        "holdfast.model.facts.without",
    ),
    "`holdfast.memory`": (
        "holdfast.agent.remembering.UserMemory",
        "holdfast.agent.remembering.Lessons",
        "holdfast.model.memory.Remembered",
        "holdfast.model.memory.Lesson",
    ),
    "`holdfast.patterns`": (
        "holdfast.patterns.amends.follow_up",
        "holdfast.patterns.amends.close_or_label",
        "holdfast.patterns.amends.release_or_refund",
        "holdfast.patterns.amends.for_operator",
        "holdfast.patterns.commits.find_commit",
        "holdfast.patterns.commits.revert_commit",
    ),
    "`holdfast.testing`": (
        "holdfast.testing.operation.operation",
        "holdfast.testing.fixtures.replay_fixture",
        "holdfast.testing.clock.run_virtual",
        "holdfast.testing.clock.virtual_seams",
        "holdfast.testing.clock.VirtualLoop",
    ),
    "The journal": ("holdfast.journal.sqlite.journal.SqliteJournal", "holdfast.journal.memory.MemoryJournal"),
}
ENGINE_ONLY: Final[dict[str, set[str]]] = {
    "Tool": {"claims", "business_key", "expected", "restore"},
    "Agent": {"stored_input", "begin"},
    "Holdfast": {"engine"},
    "SqliteJournal": {"*"},
    "MemoryJournal": {"*"},
    "VirtualLoop": {"*"},
}
# The runtime makes these; a user is given them.
NOT_MADE: Final = frozenset(
    {
        "Run",
        "Tool",
        "Handlers",
        "Compensate",
        "Confirm",
        "Transaction",
        "Held",
        "UserMemory",
        "Lessons",
        "Agent",
        "CurrentOperation",
        "RunHandle",
        "SyncHoldfast",
        "Service",
        "Decide",
        "ToolBox",
    }
)

SETTINGS: Final[dict[str, str]] = {
    "lease_ms": "How long a worker is believed alive without a sign of life. It renews at a third of this.",
    "margin_ms": "How much earlier than that it stops trusting its own lease.",
    "pause_bound_ms": "How long after its lease a process that cannot be observed (another machine, another container)"
    " may still wake up and send. Until then absence is not believed. A shorter bound is a promise of yours.",
    "clock_error_ms": "How wrong a wall clock may be. What expires by it, such as a key's memory, closes this much"
    " earlier.",
    "hold_ms": "Waits shorter than this keep the process; longer ones suspend the run.",
    "poll_ms": "How often to look for commands and events from outside.",
    "patience_ms": "How long a replay that cannot go on is given before it counts as diverged, where agent code waits"
    " for something that the runtime cannot see.",
    "grace_ms": "How long calls in flight are given to end when the process shuts down.",
    "deaths_allowed": "How many processes may die during attempts of one operation before it is parked for a person.",
    "claims_allowed": "How many processes may take a run without any progress before it is stopped as quarantined.",
    "slow_verify_ms": "How often the world is read back once a person has been asked: between this and twice this.",
    "watch_stopped_ms": "How long after a run stopped a worker reads back the effects that it left in doubt, ever less"
    " often. Nothing is sent for such a run.",
    "claim_wait_ms": "How long to wait for another operation that holds the same business key; then a person is asked.",
    "slice_ms": "The longest pause after which a waiting operation looks at its situation again.",
    "recover_every_ms": "How often to look for abandoned runs and those that are due.",
}

NEXT: Final[dict[str, str]] = {
    "HoldfastError": "Read `known` and `next_step` of the one you caught.",
    "NotSent": "Raise it in a tool where you know that nothing left. The runtime tries again within `retry`.",
    "Ambiguous": "Raise it in a tool where an answer proves nothing. The contract decides what follows.",
    "KeyInProgress": "Raise it in a tool where the service says so. The runtime asks again later, under the same key.",
    "Deferred": "Raise it in a tool where the system answers later. `holdfast pending` lists what is awaited.",
    "OperationFailed": "Nothing landed. Go another way, or let it stop the run: `holdfast why OPERATION`.",
    "Rejected": "Raise it in a tool, catch it in an agent. A fallback is safe: nothing landed.",
    "Declined": "Take the refusal as final; nothing was sent.",
    "OperationCancelled": "The run was cancelled or met its deadline. Nothing of this operation was sent.",
    "PreconditionsChanged": "Look again and decide anew.",
    "ResultLost": "Fix the tool's return annotation or what it returns. The effect is done; do not repeat it.",
    "OutcomeUnknown": "`holdfast resolve OPERATION --happened` or `--did-not-happen`.",
    "SendByPassed": "Nothing. Let it pass through the tool: the runtime decides what happens to the operation.",
    "UsageError": "Correct the call or the command; nothing was recorded or sent.",
    "ArgumentError": "Give the parameter that `parameter` names a value with a canonical form.",
    "ContractError": "Correct the declaration; the message names the fix.",
    "StaleFacts": "Read the named facts again, then decide.",
    "OutsideRun": "Call the tool from an agent; in a unit test use `holdfast.testing.operation`.",
    "UnknownTool": "Name a tool that the app holds; `holdfast tools` lists them.",
    "UnknownRun": "`holdfast ps` lists the runs. Look whether you named the right journal.",
    "NameClash": "Give one of the two another name with `name=`.",
    "MustHold": "Hold the effect until the commit, or say that it may leave at once.",
    "RunError": "See its kinds.",
    "RunSuspended": "Run the command in the message, or leave it to a worker.",
    "RunStopped": "`holdfast show RUN`; after a fix `holdfast resume RUN`. Never start it under a new id.",
    "RunBusy": "Wait for the process that drives it. Apps do this by themselves; commands tell you.",
    "ParameterMismatch": "Use another run id or business key, or the values that are on record.",
    "AmbiguousStep": "Start concurrent branches with `run.gather`, `run.map` or `run.task_group`.",
    "ReplayDiverged": "Restore the code, or put the change behind `run.version(...)`; then `holdfast resume RUN`.",
    "TransactionAborted": "Look at what still stands before you go on.",
    "ClaimUnproven": "Do what is missing, or do not claim it; then resume the run.",
    "PlanRefused": "Mend every fault that is listed, or give the list to the model that made the plan.",
    "PlanError": "Catch its kinds.",
    "PlanAborted": "Look at what still stands; plan anew where it makes sense.",
    "PlanStepFailed": "Look at the reasons, one for each call that was tried; plan anew.",
    "NewPlanNeeded": "Make a new plan with `results`: what they rely on has changed.",
    "JournalError": "The message names the file and the fix.",
    "JournalUnavailable": "Make room or repair the disk, then start again. Nothing was sent after the failure.",
    "JournalDistrusted": "`holdfast doctor`: find out what the file is before you confirm it.",
    "ChainBroken": "Keep the file as evidence, restore a backup, and find out who wrote to it.",
    "LeaseLost": "Nothing: another process goes on with the run.",
    "LedgerTaken": "Somebody was faster; `body` is the entry that stands.",
    "RecordRefused": "The record breaks a limit of the journal, such as its size. Make the value smaller.",
    "Sealed": "Do not catch it. The run is being suspended, taken over or stopped.",
    "CallerDetached": "Do not catch it. The caller was cancelled here in the first pass.",
    "SecretUnavailableError": "Set the environment variable that the message names. Nothing was sent with the secret.",
    "IllegalTransition": "Report it: a record does not fit the history. The journal was edited, or we have a bug.",
    "ResultError": "Inside `ResultLost` and refused declarations: return what the annotation says.",
}
