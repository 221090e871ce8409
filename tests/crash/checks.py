"""What has to hold after any number of kills: the records against the testimony of the witness.

The witness is right by definition. Each check names the promise that it holds.
"""

import json
from collections import Counter, defaultdict

from beforehand.model import records as r

WRITES = {"natural", "keyed", "mail", "plain"}
CHANGING = {"keyed", "mail", "plain"}  # of these a second effect is a duplicate


class Testimony:
    """What the witness says about each operation."""

    def __init__(self, world):
        self.world = world
        self.by_operation = defaultdict(list)
        for request in world["requests"]:
            if request["kind"] in WRITES:
                self.by_operation[request["operation"]].append(request)

    def effects(self, operation):
        """How often the operation's effect happened in the world."""
        requests = self.by_operation[operation]
        if not requests:
            return 0
        match requests[0]["kind"]:
            case "keyed":
                return len({request["key"] for request in requests})
            case "mail":
                return sum(len(self.world["mails"].get(key, ())) for key in {request["key"] for request in requests})
            case _:
                return len(requests)


def check(stored, world, run):
    """Everything that must hold at any moment between two lives of the run."""
    history, testimony = stored.history(run), Testimony(world)
    operations = {f"{run}/{step}": operation for step, operation in history.operations.items()}
    for operation, requests in testimony.by_operation.items():
        assert operation in operations, f"{operation} was sent and is not recorded"
        _recorded_before_sent(operations[operation], requests)
        _frozen(operation, requests)
        _once(operation, requests, testimony)
    for name, operation in operations.items():
        _no_false_outcome(name, operation, testimony)
    _one_outcome_each(stored.records(run))
    return history, testimony


def _recorded_before_sent(operation, requests):
    """Promise 1: nothing is sent unrecorded."""
    started = {attempt.number: attempt.at for attempt in operation.attempts}
    for request in requests:
        assert request["attempt"] in started, f"attempt {request['attempt']} was sent and is not recorded: {request}"
        assert started[request["attempt"]] <= request["at"], f"sent before it was recorded: {request}"


def _frozen(operation, requests):
    """Arguments and key are the same in every attempt."""
    told = {json.dumps({name: request.get(name) for name in ("name", "value", "key")}) for request in requests}
    assert len(told) == 1, f"{operation} was sent with different arguments or keys: {told}"


def _once(operation, requests, testimony):
    """Promise 2: nothing is repeated on a guess."""
    kind = requests[0]["kind"]
    if kind in CHANGING:
        assert testimony.effects(operation) <= 1, f"{operation} happened {testimony.effects(operation)} times"
    sent = Counter(request["attempt"] for request in requests)
    assert max(sent.values()) == 1, f"{operation}: one attempt was sent twice: {sent}"


def _no_false_outcome(name, operation, testimony):
    """Promise 3: nothing is claimed on a guess, and results are what the world answered."""
    effects = testimony.effects(name)
    if operation.phase == "succeeded":
        assert effects >= 1, f"{name} succeeded ({operation.settlement.basis}) and did not happen"
        assert json.loads(bytes(operation.settlement.result)) == _answer(name, testimony), name
    if operation.phase in {"failed", "cancelled"}:
        assert effects == 0, f"{name} is {operation.phase} ({operation.settlement.basis}) and happened"


def _answer(name, testimony):
    request = testimony.by_operation[name][0]
    match request["kind"]:
        case "natural":
            return request["value"]
        case "keyed":
            return testimony.world["receipts"][request["key"]]
        case "mail":
            return f"mail-{request['name']}"
        case kind:
            return f"{kind}-{request['name']}-1"


def _one_outcome_each(records):
    """The outcome is recorded once."""
    final = Counter(
        record.step for record in records if isinstance(record, r.OperationSettled) and record.status != "unknown"
    )
    assert not [step for step, count in final.items() if count > 1], final


def decisions(stored, run):
    """The model decisions that are durable."""
    return [record for record in stored.records(run) if isinstance(record, r.DecisionRecorded)]


def asked(world):
    """How often the model was asked."""
    return sum(request["kind"] == "model" for request in world["requests"])
