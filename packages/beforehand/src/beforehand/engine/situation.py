"""The only builder of a `Situation`, and the only place that asks `decide`.

A new influence on a decision is a new field of `Situation`, filled here: no move is remembered, and only this file
chooses one (`tests/unit/engine/test_always_asked.py`). It serves operations that a process drives (`OperationDriver`),
and those that are only read from a journal (`recorded_operation.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from beforehand.engine.call_limits import limited_call
from beforehand.engine.operation_driver import Decided
from beforehand.model.decision.decide import decide
from beforehand.model.decision.moves import Move
from beforehand.model.decision.situation import Block, Now, Situation, SpentBudget, WatchedNow, WayBack
from beforehand.model.money import written_money
from beforehand.model.operation import OperationState
from beforehand.model.run_budget import OF_COSTS, OF_EFFECTS, cost_of, is_effect
from beforehand.model.system import is_system
from beforehand.model.transaction import WHOLE_RUN, around, encloses
from beforehand.policies import WRITE_RETRY

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.engine.recorded_operation import AnyPolicy, RecordedOperation, RecordedRun
    from beforehand.engine.tool_protocol import PolicyCode
    from beforehand.model.messages import Messages
    from beforehand.model.records import RunStoppedRecord
    from beforehand.model.run_budget import BudgetState
    from beforehand.policies import Gate

_NONE: Final[frozenset[int]] = frozenset()


DecidedOperation: TypeAlias = "OperationDriver | RecordedOperation"
DecidedRun: TypeAlias = "ActiveRun | RecordedRun"
DecidedPolicy: TypeAlias = "PolicyCode | AnyPolicy"


def next_move(driver: DecidedOperation, operation: OperationState, now: Now) -> Move:
    """The move that `decide` chooses for the operation as it is now. There is no other way to a move.

    `decide` is pure, so it need not be asked again about the same operation in an equal situation, unless it read the
    clocks: right before a call that is mostly so.
    """
    found, situation = driver.found, situation_of(driver, operation)
    if (last := found.decided) is not None and last.operation is operation and last.situation == situation:
        return last.move
    watched = WatchedNow(now)
    move = decide(operation, situation, watched)
    found.decided = None if watched.was_read else Decided(operation, situation, move)
    return move


def situation_of(driver: DecidedOperation, operation: OperationState) -> Situation:
    """Everything that `decide` has to know besides the operation."""
    active, found, intent = driver.active, driver.found, operation.intent
    process, stopped = active.process, active.history.lifecycle.stopped
    settings, identity = process.settings, process.identity
    contract = driver.contract(operation)
    if driver.step in active.history.delivered.left and contract.retry is None:
        # Its caller may do the same by another way: what was not sent by then must not be sent minutes later.
        contract = replace(contract, retry=WRITE_RETRY)
    found.gate = contract.gate is not None and _gate_wanted(driver, contract.gate)  # before `asks`, which reads it
    return Situation(  # by position, which takes a sixth of the time
        contract,  # contract
        active.claimed_up,  # claimed_up
        "gone" if driver.tool is None else "present",  # tool
        identity.reason if identity.trust == "distrustful" else "",  # distrusted
        identity.trust == "doubtful",  # began_doubtful
        _block(driver, operation),  # blocked
        "wanted" if found.gate and found.permission is None else "",  # gate
        "" if process.policy is None else _policy(driver, operation, process.policy),  # policy
        found.permission is not None,  # permitted
        driver.asks(operation),  # asks
        "" if operation.released else intent.hold,  # hold
        process.pauses.get(intent.tool) or _paused(active),  # paused
        # A retry that is on record has taken its token: asked again right before its call, it needs no second one.
        breakers.wait_ms(intent.tool, retry=driver.started is None and bool(operation.attempts))
        if (breakers := process.breakers).states
        else 0,  # breaker_ms
        process.limits.wait(limited_call(active.history, intent.tool), driver.id)
        if process.limits is not None and process.limits.known and found.permit is None
        else None,  # limit
        found.other,  # other
        driver.arguments is not None,  # at_hand
        found.misfit if found.misfit and found.misfit_of is intent.arguments else "",  # misfit
        frozenset(n for n, call in driver.calls.items() if not call.done()) if driver.calls else _NONE,  # live
        found.reading,  # reading
        found.key_age_ms,  # key_age_ms
        settings.deaths_allowed,  # deaths_allowed
        settings.clock_error_ms,  # clock_error_ms
        settings.slow_verify_ms if stopped is None else _slow_verify_ms(active, stopped),  # slow_verify_ms
        found.hung,  # hung
        settings.hung_owner_ms,  # hung_owner_ms
        found.spent
        or (
            None if active.history.budget is None else _spent_budget(driver, operation, active.history.budget)
        ),  # budget
        _way_back(driver) if active.history.boundaries.by_name else "",  # way_back
    )


def _spent_budget(driver: DecidedOperation, operation: OperationState, budget: BudgetState) -> SpentBudget | None:
    """The limit that permits no further effect. What this operation itself takes of it is its own."""
    intent = operation.intent
    if not driver.journaled or intent.serves or intent.completes or is_effect(operation):
        return None
    added = driver.active.history.operations.get(driver.step)
    reason = budget.spent(OF_EFFECTS, without=is_effect(added))
    if intent.price and (money := budget.limits.money) is not None:
        price = written_money(intent.price)
        if price.currency != money.currency:
            return SpentBudget.of_another_currency(intent.tool, intent.price, "the budget of the run", money.currency)
        own = sum(cost_of(added, money.currency)) - sum(cost_of(operation, money.currency))
        reason = "; ".join(filter(None, (reason, budget.spent(OF_COSTS, without=own))))
    return SpentBudget(reason, budget.limits.then) if reason else None


def _paused(active: DecidedRun) -> str:
    """The reason why the run is paused; after a crash also a message that may correct facts of steps under way."""
    if active.history.lifecycle.paused is not None:
        return "the run"
    return "a message" if active.history.messages is not None and active.may_correct() else ""


def _gate_wanted(driver: DecidedOperation, gate: Gate) -> bool:
    """True if the contract requires an approval. The condition is judged once for the same arguments."""
    found, arguments = driver.found, driver.operation.intent.arguments
    if found.gate is None or found.judged is not arguments:
        found.judged = arguments
        return driver.gated(gate.when)
    return found.gate


def _policy(driver: DecidedOperation, operation: OperationState, policy: DecidedPolicy) -> str:
    """The version of the policy that rules on this; operations that were begun or are held were judged before."""
    if not driver.journaled or operation.attempts or operation.released or operation.intent.serves:
        return ""
    started = driver.active.history.lifecycle.started
    return "" if started is None or is_system(started.agent) else policy.version


# --- what blocks an operation ----------------------------------------------------------------------------------------


def block_of(active: DecidedRun) -> Block:
    """The reason that blocks new attempts of the whole run; empty if there is none."""
    if active.history.lifecycle.cancelled is not None:
        return "cancel"
    deadline = active.process.deadline_of(active.history)
    return "deadline" if deadline is not None and active.process.wall_ms() >= deadline else ""


def _block(driver: DecidedOperation, operation: OperationState) -> Block:
    """The reason that blocks new attempts of this operation; empty if there is none.

    The end of a run never stops its compensations, or operations that a commit has begun to send.
    """
    active, intent = driver.active, operation.intent
    history = active.history
    if history.lifecycle.status == "stopped":
        return "stopped" if history.lifecycle.cancelled is None else "cancel"
    if intent.confirms and not operation.attempts and history.boundaries.called_off(driver.step) is not None:
        return "aborting"  # effects that are being released are no longer confirmed
    block = block_of(active) or ("cut_off" if driver.tool is not None and driver.tool.gone() else "")
    if not (block or history.boundaries.by_name or history.messages is not None or history.given_up):
        return ""  # mostly
    if intent.serves or operation.released:
        return ""
    if history.boundaries.by_name:
        if history.boundaries.called_off(driver.step) is not None:
            return "aborting"
        if intent.hold and any(one.phase != "open" for one in around(driver.step, history.boundaries.by_name)):
            return ""
    if not block and history.messages is not None:
        block = _blocked_by_message(driver, operation, history.messages)
    if block or not history.given_up:
        return block
    # it may belong to a step of a plan that relied on a corrected fact
    return "corrected" if any(encloses(one, driver.step) for one in history.given_up) else ""


def _way_back(driver: DecidedOperation) -> WayBack:
    """How far the transaction that is being called off around an operation may go for it; empty if there is none."""
    active = driver.active
    gone = active.history.boundaries.called_off(driver.step)
    if gone is None or gone.over:
        return ""
    return "ended" if block_of(active) or WHOLE_RUN in active.history.boundaries.by_name else "open"


def _blocked_by_message(driver: DecidedOperation, operation: OperationState, messages: Messages) -> Block:
    """Stops a new write if a message was not delivered yet to the code that began it or waits for it."""
    if not driver.journaled or operation.may_have_landed:
        return ""
    if driver.step in messages.called_off:
        return "message"
    new = not operation.attempts and driver.scope is not None
    return "message" if new and driver.scope is not None and driver.scope.has_message() else ""


def _slow_verify_ms(active: DecidedRun, stopped: RunStoppedRecord) -> int:
    """How far apart readings are once a person was asked; ever further once the run has stopped."""
    since = active.process.wall_ms() - stopped.at
    return max(active.process.settings.slow_verify_ms, since)
