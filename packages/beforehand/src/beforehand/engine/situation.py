"""The only builder of a `Situation`, and the only place that asks `decide`.

A new influence on decisions is a new field of `Situation`, filled by `situation_of` from the operation and `Inputs`. No
move is remembered, and only this file chooses one (`tests/unit/engine/test_always_asked.py`). The process that drives
an operation gives the inputs here, and a reader of a journal in `recorded_operation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.breaker import ALL
from beforehand.engine.call_limits import limited_call
from beforehand.engine.operation_driver import Decided
from beforehand.model.contract import Contract
from beforehand.model.decision.decide import decide
from beforehand.model.decision.moves import Move
from beforehand.model.decision.situation import (
    Block,
    LimitWait,
    Now,
    OtherEffect,
    Reading,
    Situation,
    SpentBudget,
    WatchedNow,
    WayBack,
)
from beforehand.model.money import written_money
from beforehand.model.operation import OperationState
from beforehand.model.run_budget import OF_COSTS, OF_EFFECTS, cost_of, is_effect
from beforehand.model.run_history import RunHistory
from beforehand.model.system import is_system
from beforehand.model.transaction import WHOLE_RUN, around, encloses
from beforehand.policies import WRITE_RETRY

if TYPE_CHECKING:
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.engine.settings import Settings
    from beforehand.journal.port import Identity
    from beforehand.model.messages import Messages
    from beforehand.model.run_budget import BudgetState
    from beforehand.policies import Gate

_NONE: Final[frozenset[int]] = frozenset()


class Inputs(msgspec.Struct, frozen=True):
    """Everything that is read for one decision besides the operation, by a process or from a journal by a reader.

    `contract` holds for the next attempt. `present`: the app has the tool. `past_deadline`: the deadline of the run has
    passed. `cut_off`: the code that made the call was cancelled. `unheard`: a message has not come to the branch whose
    own task drives this. `correcting`: after a crash, one may correct facts of steps under way. `gated`: its gate wants
    an approval. `policy` is the version of the policy in force, `asks` the digest of what a person would be asked to
    approve, `paused` why its tool is paused, and `stopped_ms` how long ago the run stopped: readings are ever further
    apart from then on. The others are as in `Situation`.
    """

    history: RunHistory
    identity: Identity
    settings: Settings
    contract: Contract
    claimed_up: int
    present: bool
    journaled: bool
    past_deadline: bool
    cut_off: bool
    unheard: bool
    correcting: bool
    gated: bool
    permitted: bool
    policy: str
    asks: str
    paused: str
    breaker_ms: int
    limit: LimitWait | None
    at_hand: bool
    live: frozenset[int]
    stopped_ms: int
    other: OtherEffect | None
    misfit: str
    reading: Reading
    key_age_ms: int
    hung: str
    spent: SpentBudget | None


def next_move(driver: OperationDriver, operation: OperationState, now: Now) -> Move:
    """The move that `decide` chooses for the operation as it is now. There is no other way to a move.

    `decide` is pure, so it need not be asked again about the same operation in an equal situation, unless it read the
    clocks: right before a call that is mostly so.
    """
    found, situation = driver.found, situation_of(operation, inputs_of(driver, operation))
    if (last := found.decided) is not None and last.operation is operation and last.situation == situation:
        return last.move
    watched = WatchedNow(now)
    move = decide(operation, situation, watched)
    found.decided = None if watched.was_read else Decided(operation, situation, move)
    return move


def judge(operation: OperationState, inputs: Inputs, now: Now) -> tuple[Situation, Move]:
    """The situation and the move for a reader, which has read the inputs itself."""
    situation = situation_of(operation, inputs)
    return situation, decide(operation, situation, now)


def inputs_of(driver: OperationDriver, operation: OperationState) -> Inputs:
    """The inputs as the process that drives the operation has them."""
    active, found, intent, tool = driver.active, driver.found, operation.intent, driver.tool
    process, history = active.process, active.history
    stopped, deadline = history.lifecycle.stopped, process.deadline_of(history)
    contract = driver.contract(operation)
    found.gate = contract.gate is not None and _gate_wanted(driver, contract.gate)  # before `asks`, which reads it
    breakers, limits, told = process.breakers, process.limits, history.messages is not None
    return Inputs(  # by position, which takes a sixth of the time
        history,  # history
        process.identity,  # identity
        process.settings,  # settings
        contract,  # contract
        active.claimed_up,  # claimed_up
        tool is not None,  # present
        driver.journaled,  # journaled
        deadline is not None and process.wall_ms() >= deadline,  # past_deadline
        tool is not None and tool.gone(),  # cut_off
        told and driver.scope is not None and driver.scope.has_message(),  # unheard
        told and active.may_correct(),  # correcting
        found.gate,  # gated
        found.permission is not None,  # permitted
        "" if process.policy is None else process.policy.version,  # policy
        driver.asks(operation),  # asks
        process.pauses.get(intent.tool) or (process.pauses.get(ALL, "") if driver.journaled else "")
        if process.pauses
        else "",  # paused
        # A retry that is on record has taken its token: asked again right before its call, it needs no second one.
        breakers.wait_ms(intent.tool, retry=driver.started is None and bool(operation.attempts))
        if breakers.states
        else 0,  # breaker_ms
        limits.wait(limited_call(history, intent.tool), driver.id)
        if limits.known and found.permit is None
        else None,  # limit
        driver.arguments is not None,  # at_hand
        frozenset(n for n, call in driver.calls.items() if not call.done()) if driver.calls else _NONE,  # live
        0 if stopped is None else process.wall_ms() - stopped.at,  # stopped_ms
        found.ledger.other,  # other
        found.misfit if found.misfit and found.misfit_of is intent.arguments else "",  # misfit
        found.reading,  # reading
        found.ledger.key_age_ms,  # key_age_ms
        found.hung,  # hung
        found.spent,  # spent
    )


def situation_of(operation: OperationState, inputs: Inputs) -> Situation:
    """Everything that `decide` has to know besides the operation."""
    history, settings, identity, contract = inputs.history, inputs.settings, inputs.identity, inputs.contract
    if operation.step in history.delivered.left and contract.retry is None:
        # Its caller may do the same by another way: what was not sent by then must not be sent minutes later.
        contract = replace(contract, retry=WRITE_RETRY)
    return Situation(  # by position, as above
        contract,  # contract
        inputs.claimed_up,  # claimed_up
        "present" if inputs.present else "gone",  # tool
        identity.reason if identity.trust == "distrustful" else "",  # distrusted
        identity.trust == "doubtful",  # began_doubtful
        _block(operation, inputs),  # blocked
        "wanted" if inputs.gated and not inputs.permitted else "",  # gate
        inputs.policy and _policy(operation, inputs),  # policy
        inputs.permitted,  # permitted
        inputs.asks,  # asks
        "" if operation.released else operation.intent.hold,  # hold
        inputs.paused
        or ("the run" if history.lifecycle.paused is not None else "a message" if inputs.correcting else ""),  # paused
        inputs.breaker_ms,  # breaker_ms
        inputs.limit,  # limit
        inputs.other,  # other
        inputs.at_hand,  # at_hand
        inputs.misfit,  # misfit
        inputs.live,  # live
        inputs.reading,  # reading
        inputs.key_age_ms,  # key_age_ms
        settings.deaths_allowed,  # deaths_allowed
        settings.clock_error_ms,  # clock_error_ms
        max(settings.slow_verify_ms, inputs.stopped_ms),  # slow_verify_ms
        inputs.hung,  # hung
        settings.hung_owner_ms,  # hung_owner_ms
        inputs.spent
        or (None if history.budget is None else _spent_budget(operation, inputs, history.budget)),  # budget
        _way_back(operation, inputs) if history.boundaries.by_name else "",  # way_back
    )


def _spent_budget(operation: OperationState, inputs: Inputs, budget: BudgetState) -> SpentBudget | None:
    """The limit that permits no further effect. What this operation itself takes of it is its own."""
    intent = operation.intent
    if not inputs.journaled or intent.serves or intent.completes or is_effect(operation):
        return None
    added = inputs.history.operations.get(operation.step)
    reason = budget.spent(OF_EFFECTS, without=is_effect(added))
    if intent.price and (money := budget.limits.money) is not None:
        price = written_money(intent.price)
        if price.currency != money.currency:
            return SpentBudget.of_another_currency(intent.tool, intent.price, "the budget of the run", money.currency)
        own = sum(cost_of(added, money.currency)) - sum(cost_of(operation, money.currency))
        reason = "; ".join(filter(None, (reason, budget.spent(OF_COSTS, without=own))))
    return SpentBudget(reason, budget.limits.then) if reason else None


def _gate_wanted(driver: OperationDriver, gate: Gate) -> bool:
    """True if the contract requires an approval. The condition is judged once for the same arguments."""
    found, arguments = driver.found, driver.operation.intent.arguments
    if found.gate is None or found.judged is not arguments:
        found.judged = arguments
        return driver.gated(gate.when)
    return found.gate


def _policy(operation: OperationState, inputs: Inputs) -> str:
    """The version of the policy that rules on this; operations that were begun or are held were judged before."""
    if not inputs.journaled or operation.attempts or operation.released or operation.intent.serves:
        return ""
    started = inputs.history.lifecycle.started
    return "" if started is None or is_system(started.agent) else inputs.policy


# --- what blocks an operation ----------------------------------------------------------------------------------------


def block_of(inputs: Inputs) -> Block:
    """The reason that blocks new attempts of the whole run; empty if there is none."""
    if inputs.history.lifecycle.cancelled is not None:
        return "cancel"
    return "deadline" if inputs.past_deadline else ""


def _block(operation: OperationState, inputs: Inputs) -> Block:
    """The reason that blocks new attempts of this operation; empty if there is none.

    The end of a run never stops its compensations, or operations that a commit has begun to send.
    """
    history, intent, step = inputs.history, operation.intent, operation.step
    if history.lifecycle.status == "stopped":
        return "stopped" if history.lifecycle.cancelled is None else "cancel"
    if intent.confirms and not operation.attempts and history.boundaries.called_off(step) is not None:
        return "aborting"  # effects that are being released are no longer confirmed
    block = block_of(inputs) or ("cut_off" if inputs.cut_off else "")
    if not (block or history.boundaries.by_name or history.messages is not None or history.given_up):
        return ""  # mostly
    if intent.serves or operation.released:
        return ""
    if history.boundaries.by_name:
        if history.boundaries.called_off(step) is not None:
            return "aborting"
        if intent.hold and any(one.phase != "open" for one in around(step, history.boundaries.by_name)):
            return ""
    if not block and history.messages is not None:
        block = _blocked_by_message(operation, inputs, history.messages)
    if block or not history.given_up:
        return block
    # it may belong to a step of a plan that relied on a corrected fact
    return "corrected" if any(encloses(one, step) for one in history.given_up) else ""


def _way_back(operation: OperationState, inputs: Inputs) -> WayBack:
    """How far the transaction that is being called off around an operation may go for it; empty if there is none."""
    boundaries = inputs.history.boundaries
    gone = boundaries.called_off(operation.step)
    if gone is None or gone.over:
        return ""
    return "ended" if block_of(inputs) or WHOLE_RUN in boundaries.by_name else "open"


def _blocked_by_message(operation: OperationState, inputs: Inputs, messages: Messages) -> Block:
    """Stops a new write if a message was not delivered yet to the code that began it or waits for it."""
    if not inputs.journaled or operation.may_have_landed:
        return ""
    if operation.step in messages.called_off or (inputs.unheard and not operation.attempts):
        return "message"
    return ""
