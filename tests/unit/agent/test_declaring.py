"""Declaring tools, handlers and agents: what contradicts itself is refused at once, and the fix is named."""

import copy
import inspect
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, Protocol, TypedDict

import pytest

from beforehand import Key, Once, Operation, Run, Verdict, agent, tool, tool_from_schema
from beforehand.agent.agent import gather_agents, gather_tools
from beforehand.agent.hosted import described_tool, fitting
from beforehand.agent.model_calls import ToolBox
from beforehand.errors import ContractError, NameClash, OutsideRun, UsageError
from beforehand.model.ids import can_name
from beforehand.policies import Retry


@dataclass
class Ticket:
    id: str
    lines: list[int]


@tool
async def send(to: str, *, subject: str = "hello") -> str:
    """Send a mail."""
    return to


# --- tools ------------------------------------------------------------------------------------------------


def test_a_tool_keeps_its_name_signature_and_docstring():
    assert (send.name, send.__name__, send.__doc__) == ("send", "send", "Send a mail.")
    assert str(inspect.signature(send)) == "(to: str, *, subject: str = 'hello') -> str"
    assert send.__wrapped__ is not send
    assert repr(send) == "<tool send (write)>"


def test_a_tool_from_a_schema_shows_its_schema_and_takes_only_what_fits():
    async def body(**_: Any) -> None: ...

    schema = {
        "type": "object",
        "properties": {"order-id": {"type": "string"}, "cents": {"type": "integer"}},
        "required": ["order-id"],
    }
    made = tool_from_schema(body, name="refund", parameters=schema, description="Refund an order.")
    assert ToolBox({"refund": made}).schemas() == [
        {"name": "refund", "description": "Refund an order.", "parameters": schema}
    ]
    assert made.spec.bind((), {"order-id": "A-1"}) == {"order-id": "A-1"}
    for wrong in ({}, {"order-id": "A-1", "more": 1}):
        with pytest.raises(TypeError, match="its parameters are order-id, cents"):
            made.spec.bind((), wrong)
    made.late = True
    again = tool(name="again", gate="cents > 5")(made)
    assert not again.late
    assert (again.spec.types, again.spec.required) == (made.spec.types, {"order-id"}), "declared again"
    wrongs: tuple[Any, ...] = ("nonsense", None, {"properties": []}, {"required": "cents"}, {"type": "string"})
    for parameters in wrongs:
        with pytest.raises(ContractError, match="not a JSON schema of an object") as error:
            tool_from_schema(body, name="refund", parameters=parameters)
        assert "properties" in error.value.next_step
    with pytest.raises(ContractError, match="cannot name a tool"):
        tool_from_schema(body, name="", parameters=schema)


def test_a_gate_that_always_asks_needs_no_library():
    program = """
import sys
from collections.abc import Mapping
sys.modules["cel"] = None
from beforehand import tool
@tool(gate="true")
async def pay(cents: int) -> None: ...
print(pay.gated("true", {"cents": object()}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_arguments_are_bound_as_a_plain_call_binds_them():
    assert send.spec.bind(("ann",), {}) == {"to": "ann", "subject": "hello"}
    assert send.spec.bind((), {"subject": "x", "to": "bob"}) == {"to": "bob", "subject": "x"}
    for args, kwargs in (((), {}), (("a", "b"), {}), (("a",), {"to": "b"}), (("a",), {"cc": "b"})):
        with pytest.raises(TypeError):
            send(*args, **kwargs)


def declare(**clauses: Any) -> Any:
    async def it(order: str, cents: int = 1) -> str:
        return order

    return tool(**clauses)(it)


@pytest.mark.parametrize(
    ("clauses", "says"),
    [
        ({"effect": "wirte"}, "effect='wirte'"),
        ({"timeout": timedelta(0)}, "give every call a time limit"),
        ({"effect": "read", "idempotency": Key.forever()}, "a read changes nothing"),
        ({"effect": "read", "claim": "order"}, "a read changes nothing"),
        ({"effect": "read", "once": Once("order")}, "a read changes nothing"),
        ({"rejections": {404}, "not_sent": {404}}, "status 404 is declared both as a refusal and as not sent"),
        (
            {"not_sent": {409}, "idempotency": Key.forever(in_progress_statuses=(409,))},
            "status 409 is declared as a proof that nothing landed, and as a key in progress",
        ),
        (
            {"idempotency": Key.forever(in_progress_statuses=[409])},
            r"is not a tuple of HTTP statuses. Next: write .409,.",
        ),
        ({"idempotency": Key.forever(in_progress_statuses=("409",))}, "'409' is not an HTTP status"),
        ({"once": Once()}, "names no parameter"),
        ({"claim": "invoice"}, "claim= names the parameter 'invoice'"),
        ({"once": Once("invoice")}, "once= names the parameter 'invoice'"),
        ({"redact": {"invoice"}}, "its parameters are order, cents"),
        ({"idempotency": Key(ttl=timedelta(seconds=60))}, "a retry could never be deduplicated"),
        ({"once": "order"}, r"once='order' is not accepted. Next: write Once\(...\), or nothing"),
        ({"once": ("order",)}, r"once=\('order',\) is not accepted. Next: write Once"),
        ({"pending": "an answer"}, "pending='an answer' is not accepted. Next: write Pending"),
        ({"retry": 3}, "retry=3 is not accepted. Next: write Retry"),
        ({"budget": 3}, "budget=3 is not accepted. Next: write Budget"),
        ({"gate": 3}, "gate=3 is not accepted. Next: write Gate"),
        ({"idempotency": "order"}, "idempotency='order' is not accepted. Next: write Key"),
        (
            {"idempotency": Key.forever(in_progress="waits")},
            "in_progress='waits' does not exist. Next: choose rejects or blocks or runs_",
        ),
        ({"idempotency": Key.forever(mismatch="no")}, "mismatch='no'"),
        ({"idempotency": Key.forever(stores="some")}, "stores='some'"),
        (
            {"once": Once("order", then="skip")},
            "then='skip' does not exist. Next: choose replay or ask or block or allow",
        ),
        ({"on_unknown": "fail"}, "on_unknown='fail'"),
        ({"rejections": ["402"]}, "'402' is not an HTTP status"),
        ({"not_sent": 429}, "429 is not a list of HTTP statuses"),
        ({"idempotent": True}, "does not take idempotent. Known: it takes budget, claim, classify, effect,"),
        ({"timeout": 60}, "60 is not a duration. Next: write timedelta.seconds=60."),
    ],
)
def test_contradictory_clauses_are_refused(clauses: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says.replace("=", ".").replace("'", ".")):
        declare(**clauses)


def test_parameters_without_a_name_are_refused():
    for function in (lambda *args: None, lambda **kwargs: None, eval("lambda a, /: None")):
        with pytest.raises(ContractError, match="no name that can be recorded"):
            tool(function)


def test_annotations_that_only_type_checkers_see_are_left_out():
    def odd(when: "Nowhere", count: int) -> None:  # type: ignore[name-defined]  # noqa: F821 - that it is missing is the point
        return None

    assert tool(odd).spec.types == {"when": Any, "count": int}


def test_a_callable_object_can_be_a_tool():
    class Sender:
        __name__ = __qualname__ = "sender"

        async def __call__(self, to: str) -> str:
            return to

    made = tool(name="send_it")(Sender())
    assert (made.name, made.__name__, made.body.is_async) == ("send_it", "send_it", True)  # frameworks read the second
    assert "sender" in made.where


# --- handlers ---------------------------------------------------------------------------------------------


def fresh() -> Any:
    return declare()


def test_handlers_are_given_back_and_take_what_they_name():
    made = fresh()

    @made.verify(settle_window=timedelta(seconds=9), deadline=timedelta(minutes=1), every=timedelta(0))
    async def verify(operation: Operation[str], cents: int) -> Verdict[str]: ...

    @made.observe
    def observe(operation: Operation[str]) -> int:
        return 1

    @made.expect
    def expect(order: str) -> str:
        return order

    @made.compensate(restores=True, absent_safe=True, timeout=timedelta(seconds=3))
    async def amends(operation: Any, extra: int = 5) -> None: ...

    assert inspect.iscoroutinefunction(verify)
    assert (observe(None), expect("a")) == (1, "a")
    contract = made.contract
    assert (contract.settle_ms, contract.verify_deadline_ms, contract.verify_every_ms) == (9000, 60_000, 1)
    assert (contract.observes, contract.expects, contract.restores, contract.absent_safe) == (True,) * 4
    companion = made.compensate.code
    assert (companion.name, companion.contract.timeout_ms, contract.amends) == ("amends", 3000, "amends")
    assert companion.body.parameters == frozenset({"extra"})
    assert inspect.iscoroutinefunction(amends)


@pytest.mark.parametrize(
    ("kind", "settings", "function", "says"),
    [
        ("verify", {}, lambda: None, "takes no operation"),
        ("verify", {}, lambda operation, invoice: None, "asks for 'invoice', which"),
        ("verify", {"restores": True}, lambda operation: None, "does not take restores"),
        ("observe", {"settle_window": timedelta(1)}, lambda operation: None, "it takes timeout"),
        ("expect", {"timeout": timedelta(1)}, lambda: None, "it takes no settings"),
        ("expect", {}, lambda operation, order: None, "made before there is an operation.*takes any of: order, cents"),
        ("verify", {"settle_window": timedelta(-1)}, lambda operation: None, "settle_window is negative"),
    ],
)
def test_handlers_that_do_not_fit_are_refused(kind: str, settings: dict[str, Any], function: Any, says: str):
    with pytest.raises(ContractError, match=says):
        getattr(fresh(), kind)(**settings)(function)


def test_annotations_of_handlers_have_to_fit_the_tool():
    def not_an_operation(operation: int) -> None: ...
    def another_result(operation: Operation[int]) -> None: ...
    def another_type(operation: Operation[str], cents: str) -> None: ...
    async def asynchronous(order: str) -> str:
        return order

    for function, says in (
        (not_an_operation, "its first parameter is the operation"),
        (another_result, "expects the result type"),
        (another_type, "annotates cents as str"),
    ):
        with pytest.raises(ContractError, match=says):
            fresh().verify(function)
    with pytest.raises(ContractError, match="use a plain def"):
        fresh().expect(asynchronous)


def test_nothing_is_annotated_and_nothing_complains():
    @tool
    def nothing(a):
        return a

    @nothing.verify
    def verify(operation, a): ...

    @tool
    def gone(a: bool) -> None: ...

    @gone.compensate
    def back(operation: Operation[None], a: int) -> None: ...

    assert nothing.contract.verifies


def test_a_read_takes_no_handlers_and_a_claim_is_named_once():
    @tool(effect="read")
    def look(order: str) -> int:
        return 1

    with pytest.raises(ContractError, match="there is nothing to verify"):
        look.verify(lambda operation: None)
    with pytest.raises(ContractError, match="keep one of the two"):
        declare(claim="order").claim(lambda order: order)


# --- agents -----------------------------------------------------------------------------------------------


@agent(run_id="ticket-{ticket.id}-{ticket.lines[1]:>03}")
async def desk(run: Run, ticket: Ticket) -> str:
    """Work."""
    return ticket.id


def test_an_agent_names_its_runs_from_the_input():
    assert desk.run_id_for(Ticket("a1", [1, 2])) == "ticket-a1-002"
    assert repr(desk) == "<agent desk>"
    with pytest.raises(UsageError, match="cannot be made from this input"):
        desk.run_id_for(Ticket("a1", [1]))
    with pytest.raises(UsageError, match="cannot name a run"):
        desk.run_id_for(Ticket("a b", [1, 2]))


def test_mappings_and_conversions_in_a_template():
    @agent(run_id="{it[id]}-{it[name]!r}")
    async def mapped(run: Run, it: dict[str, str]) -> None: ...

    with pytest.raises(UsageError, match="cannot name a run"):
        mapped.run_id_for({"id": "1", "name": "x"})
    with pytest.raises(UsageError, match="give the input that field"):
        mapped.run_id_for({"id": "1"})


def test_an_agent_without_a_template_asks_for_a_run_id():
    @agent()
    async def nameless(run: Run, it: str) -> None: ...

    with pytest.raises(UsageError, match="does not say how its runs are named"):
        nameless.run_id_for("x")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("fixed", "is the same for every input"),
        ("t-{ticket.name}", "names 'name', which its input does not have"),
        ("t-{id}", "names 'id', which is a field of its input"),
        ("t-{ticket.id", "cannot be read: expected '}' before end of string"),
    ],
)
def test_templates_that_cannot_work_are_refused(template: str, says: str):
    with pytest.raises(ContractError, match=says):

        @agent(run_id=template)
        async def it(run: Run, ticket: Ticket) -> None: ...


def test_agents_of_the_wrong_shape_are_refused():
    with pytest.raises(ContractError, match="is not async"):

        @agent()
        def sync(run: Run, it: str) -> None: ...

    with pytest.raises(ContractError, match="does not take a run and one input"):

        @agent()
        async def two(run: Run, a: str, b: str) -> None: ...

    with pytest.raises(ContractError, match="'a/b' cannot name an agent"):

        @agent(name="a/b")
        async def named(run: Run, it: str) -> None: ...

    with pytest.raises(ContractError, match="has no annotation"):

        @agent()
        async def bare(run: Run, it) -> None: ...


def test_an_agent_is_not_called_directly():
    with pytest.raises(OutsideRun, match=r"desk\.run\(desk, input\)"):
        desk(None, Ticket("a", [1, 2]))


def test_inputs_are_parsed_from_json_text():
    assert desk.parse_input(b'{"id": "a", "lines": [1]}') == Ticket("a", [1])
    with pytest.raises(UsageError, match="it takes Ticket"):
        desk.parse_input(b'{"id": "a"}')


# --- what an app holds ------------------------------------------------------------------------------------


def test_an_agent_sees_the_tools_of_its_module_and_closure_unless_it_names_them():
    inner = declare(name="inner")

    @agent()
    async def sees(run: Run, it: str) -> None:
        await inner(it)

    assert {found.name for found in sees.tools} == {"inner", "send"}
    assert {found.name for found in desk.tools} == {"send"}

    async def helper(it: str) -> None:
        await inner(it)

    @agent()
    async def through_a_helper(run: Run, it: str) -> None:
        await helper(it)

    assert {found.name for found in through_a_helper.tools} == {"inner", "send"}

    @agent(tools=[inner])
    async def names(run: Run, it: str) -> None: ...

    assert gather_tools([names], []) == {"inner": inner}


def test_two_of_one_name_clash_and_a_cell_run_again_does_not():
    first, again = declare(), declare()
    assert gather_tools([], [first, again])["it"] is again
    other = declare(name="send")
    with pytest.raises(NameClash, match="two tools of this app are named 'send'"):
        gather_tools([], [send, other])

    @agent(name="desk")
    async def second(run: Run, it: str) -> None: ...

    with pytest.raises(NameClash, match="two agents"):
        gather_agents([desk, second])
    assert gather_agents([desk, desk]) == {"desk": desk}


def test_what_is_no_agent_or_tool_is_refused():
    with pytest.raises(ContractError, match="is not an agent"):
        gather_agents([send])
    with pytest.raises(ContractError, match="is not a tool"):
        gather_tools([], [desk])


def test_expected_evidence_needs_somebody_to_look_for_it():
    made = fresh()
    made.expect(lambda order: order)
    with pytest.raises(ContractError, match="no verifier reads it"):
        gather_tools([], [made])


def test_policies_refuse_what_makes_no_sense():
    with pytest.raises(ValueError, match="the first attempt counts"):
        Retry(attempts=0)
    with pytest.raises(ValueError, match="cannot be negative"):
        Retry(base=timedelta(-1))
    with pytest.raises(ValueError, match="more than zero"):
        Key(ttl=timedelta(0))


def test_an_agent_needs_no_settings():
    @agent
    async def plain(run: Run, number: int) -> int:
        return number

    assert plain.name == "plain"
    assert plain.template is None


def test_an_agent_sees_the_tools_of_its_file_however_that_was_run():
    """A profiler, `runpy` or a notebook runs a file under a module name whose module is another one."""
    space: dict[str, object] = {"__name__": "__main__"}
    code = """
from beforehand import agent, tool
@tool
async def put(what: str) -> None: ...
@agent()
async def desk(run, given: str) -> None:
    await put(given)
"""
    exec(code, space)
    assert [found.name for found in space["desk"].tools] == ["put"]


def test_a_tool_that_a_host_describes_again_is_made_once_and_another_one_is_made_anew():
    schema: dict[str, Any] = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    clauses: dict[str, Any] = {"effect": "read"}
    one = described_tool("pay", schema, clauses)
    assert described_tool("pay", copy.deepcopy(schema), dict(clauses)) is one
    assert described_tool("pay", schema, {}).contract.effect == "write"
    asked = described_tool("pay", schema, {}, asked=True)
    assert (asked.contract.gate is None, described_tool("pay", schema, {}).contract.gate) == (False, None)
    clauses["effect"] = "write"
    assert described_tool("pay", schema, clauses).contract.effect == "write"
    schema["properties"]["to"] = {"type": "string"}
    assert described_tool("pay", schema, clauses).spec.types == {"cents": int, "to": str}


def test_a_name_that_is_too_long_is_cut_and_keeps_what_makes_it_another():
    longer = ["x" * 300 + end for end in "ab"]
    assert [fitting("x" * length) for length in (1, 188)] == ["x", "x" * 188]
    assert len({fitting(one) for one in longer}) == 2
    assert all(can_name(f"{fitting(one)}.confirmed") for one in [*longer, "x" * 189])


class Named(Protocol):
    id: str


class Form(TypedDict):
    id: str


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        (Ticket, Ticket("1", []), ({"id": "1"}, "1", None)),
        (float, 1, ("1", None)),
        (Ticket | None, None, ("1", {})),
        (Annotated[int, "cents"], 5, ("5", 5.0)),
        (list[int], [1], ("1", {})),
        (Mapping[str, int], {"a": 1}, ([1], "a")),
        (Form, {"id": "1"}, ("1", Ticket("1", []))),
        (Named, Ticket("1", []), ()),
        (Literal["a", "b"], "a", ()),
        (Any, None, ()),
    ],
)
def test_an_input_of_another_type_is_refused_before_anything_is_stored(kind: Any, fits: Any, others: tuple[Any, ...]):
    async def work(run: Run, given: Any) -> None: ...

    work.__annotations__["given"] = kind
    desk = agent(name="desk")(work)
    assert desk.stored_input(fits, b"secret")
    for other in others:
        with pytest.raises(UsageError, match=f"does not fit the agent desk: it is of the type {type(other).__name__}"):
            desk.stored_input(other, b"secret")
