"""Runs that are hosted: names, rest and bodies do not depend on the tasks of the framework that calls the steps.

The file is long because every way in which a host can call has its own case.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import beforehand
from beforehand import (
    Ambiguous,
    Key,
    NotSent,
    Rejected,
    Run,
    agent,
    current_run,
    tool,
    tool_from_schema,
)
from beforehand.agent.hosted import HostControl, HostedRun, TurnSettings, in_hosted_run
from beforehand.errors import AmbiguousStep, ArgumentError, OutsideRun, ReplayDiverged, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.policies import Gate
from tests.unit.engine.lab import Lab, virtual


async def in_host_tasks(call: Callable[[], Awaitable[Any]], deep: int = 3) -> Any:
    """As frameworks do: the call is made in a task of a task, beside helpers that only wait."""
    helper = asyncio.create_task(asyncio.Event().wait())
    try:
        return await asyncio.create_task(in_host_tasks(call, deep - 1) if deep else _awaited(call))
    finally:
        helper.cancel()


async def _awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


def sent_steps(lab: Lab, run: str = "r-x") -> list[str]:
    return [started.step for started in lab.of(run, r.AttemptStarted)]


def mails(lab: Lab) -> Any:
    @tool
    async def mail(to: str) -> str:
        lab.sent.append(to)
        if to == "lost":
            raise Ambiguous("the connection broke")
        return f"to {to}"

    return mail


def call_of(run: Run, mail: Any, to: str = "ann") -> Callable[[], Awaitable[str]]:
    """A call of a model as its host makes it: in the step that the host has named."""

    async def call() -> str:
        with run.step("call_1"):
            return str(await mail(to))

    return call


@virtual
async def test_steps_are_named_by_the_host_and_not_by_its_tasks(lab: Lab):
    mail = mails(lab)
    deep = 1

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        async def one(to: str) -> str:
            with run.step(f"call_{to}"):
                return await mail(to)

        done = await asyncio.gather(*(in_host_tasks(lambda to=to: one(to), deep) for to in ("ann", "bob")))
        await run.sleep(timedelta(hours=1))
        return list(done)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        assert sorted(sent_steps(lab)) == ["call_ann/mail#1", "call_bob/mail#1"]
        deep = 4  # the next release of the host makes other tasks
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == ["to ann", "to bob"]
    assert sorted(lab.sent) == ["ann", "bob"]


@virtual
async def test_a_question_reaches_the_inbox_while_the_host_keeps_a_task(lab: Lab):
    mail = mails(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        call = call_of(run, mail, "lost")
        return await in_host_tasks(call)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="r-x/call_1/mail#1"):
            await app.run(desk, "x")
        (row,) = await app.engine.journal.runs(run="r-x")
        assert row.status == "suspended"
        assert b"call_1/mail#1" in row.waits
        await app.service.resolve("r-x/call_1/mail#1", "happened", by="ann", result="to lost")
        assert await app.run(desk, "x") == "to lost"
    assert lab.sent == ["lost"]


@virtual
async def test_a_task_that_a_host_begins_while_it_finds_something_out_does_not_keep_the_run(lab: Lab):
    """A client that is opened to list the tools of a server lives on beside the calls."""
    mail, clients = mails(lab), []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        hosted = in_hosted_run("this")

        async def listed() -> list[str]:
            clients.append(asyncio.create_task(asyncio.Event().wait()))
            await asyncio.sleep(0)
            return ["mail"]

        assert await asyncio.create_task(hosted.value("tools", listed)) == ["mail"]
        assert HostedRun.current() is not None
        return str(await asyncio.create_task(call_of(run, mail, "lost")()))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="r-x/call_1/mail#1"):
            await asyncio.wait_for(app.run(desk, "x"), 60)
    for client in clients:
        client.cancel()


@virtual
async def test_a_call_that_begins_while_another_one_waits_is_made_before_the_run_is_suspended(lab: Lab):
    mail = mails(lab)

    @tool(gate="true")
    async def pay(to: str) -> str:
        lab.sent.append(f"paid {to}")
        return to

    @agent(run_id="r-{name}", tools=[mail, pay])
    async def desk(run: Run, name: str) -> list[str]:
        async def call(one: Any, to: str, after: float) -> str:
            await asyncio.sleep(after)  # the host prepares the call, which no record shows
            with run.step(f"call_{to}"):
                return await one(to)

        calls = (lambda: call(pay, "a", 0), lambda: call(mail, "b", 0.05))
        return list(await asyncio.gather(*map(in_host_tasks, calls)))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may pay"):
            await app.run(desk, "x")
    assert lab.sent == ["b"]


@virtual
async def test_two_calls_of_one_name_at_once_are_refused_and_one_after_the_other_is_numbered(lab: Lab):
    mail = mails(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        async def call(to: str) -> str:
            with run.step("call_1"):
                return await mail(to)

        await call("ann")
        await call("bob")
        open_call = HostedRun(run._root)
        with (
            run.step("call_1"),
            pytest.raises(UsageError, match="two calls at once") as error,
            open_call.step("call_1"),
        ):
            pass
        assert "nothing was sent" in error.value.known
        with pytest.raises(UsageError, match="cannot name a step of a host"), run.step("a/b"):
            pass
        return "done"

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "done"
    assert sent_steps(lab) == ["call_1/mail#1", "call_1#2/mail#1"]


@virtual
async def test_a_call_that_was_refused_beside_the_first_is_not_made_in_a_replay(lab: Lab):
    mail = mails(lab)
    told: list[str] = []

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        call = call_of(run, mail)
        first = asyncio.create_task(call())
        await asyncio.sleep(0 if not told else 1)  # a replay delivers the first call at once
        with pytest.raises(UsageError, match="two calls at once"):
            await call()
        told.append(await first)
        await run.sleep(timedelta(hours=1))
        return told[-1]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == "to ann"
    assert lab.sent == ["ann"]


@virtual
async def test_a_call_that_the_host_cancels_and_makes_again_happens_once(lab: Lab):
    answered = asyncio.Event()

    async def body() -> str:
        lab.sent.append("paid")
        await answered.wait()
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> Any:
        async def call() -> Any:
            return await in_hosted_run("pay").call_body("call_1", closure_tool(), {"cents": 5}, body)

        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(in_host_tasks(call), 5)  # a time limit of the host
        answered.set()
        outcome, _ = await in_host_tasks(call)
        await run.sleep(timedelta(hours=1))
        return [outcome.status, outcome.value, outcome.operation]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == ["succeeded", "paid", "r-x/call_1/pay#1"]
    assert lab.sent == ["paid"]
    assert sent_steps(lab) == ["call_1/pay#1"]


@virtual
async def test_branches_of_agent_code_are_not_numbered_with_the_tasks_of_a_host(lab: Lab):
    mail = mails(lab)
    deep = 1

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        call = call_of(run, mail)
        await in_host_tasks(call, deep)
        await run.gather(mail("bob"), mail("cid"))
        await run.sleep(timedelta(hours=1))
        return "done"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        deep = 4  # the next release of the host makes other tasks
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == "done"
    assert sorted(sent_steps(lab)) == ["call_1/mail#1", "~~1/mail#1", "~~2/mail#1"]


@virtual
async def test_plain_tasks_of_agent_code_are_numbered_with_those_of_a_host(lab: Lab):
    mail = mails(lab)
    helpers = 1

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        call = call_of(run, mail)
        for _ in range(helpers):
            await asyncio.create_task(asyncio.sleep(0))  # of the host
        await in_host_tasks(call)
        await asyncio.gather(mail("bob"), mail("cid"))
        await run.sleep(timedelta(hours=1))
        return "done"

    async with lab.app(desk) as app:
        for name in ("same", "upgraded"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
        await lab.pass_time(hours=1)
        assert await app.run(desk, "same") == "done"
        helpers = 4  # the next release of the host makes other tasks: the run is stopped, and nothing is sent
        with pytest.raises(ReplayDiverged):
            await app.run(desk, "upgraded")
    assert sorted(lab.sent) == ["ann", "ann", "bob", "bob", "cid", "cid"]


@virtual
async def test_a_step_in_a_plain_task_after_a_host_lets_the_run_be_suspended(lab: Lab):
    mail = mails(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        call = call_of(run, mail)
        await in_host_tasks(call)
        return list(await asyncio.gather(mail("bob"), mail("lost")))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may have landed"):
            await app.run(desk, "x")
    assert sorted(lab.sent) == ["ann", "bob", "lost"]


@virtual
async def test_a_task_of_the_host_that_does_not_end_is_named_and_does_not_keep_the_run(
    lab: Lab, caplog: pytest.LogCaptureFixture
):
    mail = mails(lab)

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        helper = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        with run.step("call_1"):
            said = await mail("ann")
        assert not helper.done()
        return said

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "to ann"
    assert "run r-x: its code does not end at" in caplog.text
    assert "in stubborn" in caplog.text


@virtual
async def test_the_advice_for_a_task_of_a_framework_works(lab: Lab):
    mail = mails(lab)
    loop = asyncio.get_running_loop()

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        import contextvars

        async def named() -> str:
            with run.step("call_9f2"):
                return await mail("ann")

        async def unnamed() -> str:
            return await mail("ann")

        same = contextvars.copy_context()  # as LangGraph does: the task runs in a context of the host's own
        with pytest.raises(AmbiguousStep) as error:
            await loop.create_task(unnamed(), context=same)
        assert 'with run.step("call_9f2")' in error.value.next_step
        return await loop.create_task(named(), context=same)

    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "to ann"
    assert sent_steps(lab) == ["call_9f2/mail#1"]


def closure_tool(**clauses: Any) -> Any:
    async def unused(**_: Any) -> None:
        raise AssertionError

    return tool_from_schema(
        unused, name="pay", parameters={"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
        late=True, **clauses,
    )  # fmt: skip


def paying(lab: Lab, body: Callable[[], Awaitable[Any]], **clauses: Any) -> Any:
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> Any:
        async def call() -> Any:
            hosted = in_hosted_run("pay")
            return await hosted.call_body("call_1", closure_tool(**clauses), {"cents": 5}, body)

        outcome, control = await in_host_tasks(call)
        return [outcome.status, outcome.value, control]

    return desk


@virtual
async def test_the_body_of_a_host_is_an_operation_of_its_own(lab: Lab):
    async def body() -> str:
        lab.sent.append(beforehand.current_operation().id)
        with pytest.raises(OutsideRun):
            current_run()
        return "paid"

    desk = paying(lab, body)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["succeeded", "paid", None]
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["succeeded", "paid", None]
    assert lab.sent == ["r-x/call_1/pay#1"]


@virtual
async def test_arguments_that_cannot_be_recorded_are_a_failed_call_and_not_the_end_of_the_run(lab: Lab):
    """The answer with them is on record, so a run that ended with them could never continue."""

    async def body() -> str:
        raise AssertionError("nothing is called")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        hosted, found = in_hosted_run("pay"), list[str]()
        for number, cents in enumerate(("9" * 2_000_000, "\ud800")):
            outcome, _ = await hosted.call_body(f"call_{number}", closure_tool(), {"cents": cents}, body)
            found.append(f"{outcome.status} {outcome.code} {outcome.operation}: {outcome.as_text()}")
        return found

    async with lab.app(desk) as app:
        large, odd = await app.run(desk, "x")
    assert large.startswith("failed bad_arguments r-x/call_0: ")
    assert "larger than 1048576 bytes" in large
    assert "lone surrogate" in odd
    assert "Nothing was changed." in odd


@virtual
async def test_a_recorded_call_is_never_told_as_one_that_changed_nothing(lab: Lab):
    given: dict[str, Any] = {"cents": 5}

    async def body() -> str:
        return "paid"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        outcome, _ = await in_hosted_run("pay").call_body("call_1", closure_tool(gate=Gate("true")), given, body)
        return outcome.as_text()

    await lab.until_suspended(desk, "x")
    given["cents"] = "9" * 2_000_000
    async with lab.app(desk) as app:
        with pytest.raises(ArgumentError, match="larger than"):
            await app.run(desk, "x")


@virtual
async def test_the_body_of_a_host_is_called_after_an_approval_that_came_while_no_process_ran(lab: Lab):
    async def body() -> str:
        lab.sent.append("paid")
        return "paid"

    desk = paying(lab, body, gate=Gate("true"))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="may pay"):
            await app.run(desk, "x")
        assert lab.sent == []
        with pytest.raises(UsageError, match="sends the arguments itself"):
            await app.service.edit("r-x/call_1/pay#1", {"cents": 6}, by="ann")
        await app.service.approve("r-x/call_1/pay#1", by="ann")
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["succeeded", "paid", None]
    assert lab.sent == ["paid"]


@virtual
async def test_recovery_waits_for_the_host_where_only_the_host_has_the_body(lab: Lab):
    tries = 0

    async def body() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise NotSent("the system is down", retry_after=3600)
        lab.sent.append("paid")
        return "paid"

    desk = paying(lab, body)
    await lab.until_suspended(desk, "x")
    await lab.pass_time(hours=2)
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == ["succeeded", "paid", None]
    assert lab.sent == ["paid"]


@virtual
async def test_a_body_that_can_be_sent_again_goes_on_over_an_outage_and_its_time_ends(lab: Lab):
    """Each time its run is suspended in between, and only the host brings the body back."""
    tried: list[float] = []

    async def body() -> str:
        assert beforehand.current_operation().key
        tried.append(lab.loop.time())
        raise NotSent("the system is down")

    desk = paying(lab, body, idempotency=Key.forever())
    async with lab.app(desk, recover=True, recover_every_ms=1000) as app:
        app.start(desk, "x")
        await lab.pass_time(minutes=9)
        assert (await app.service.row("r-x")).status in {"running", "suspended"}
        await lab.pass_time(minutes=11)
        assert await app.run(desk, "x") == ["failed", None, None]
        _, operation = await app.service.operation("r-x/call_1/pay#1")
    assert operation.reason.startswith("the time for attempts is over (0:10:00)")
    assert len(tried) < 30
    assert lab.of("r-x", r.RunSuspendedRecord)


@pytest.mark.parametrize("brings", [True, False])
@virtual
async def test_a_body_that_only_a_host_has_is_waited_for_and_not_for_ever(lab: Lab, *, brings: bool):
    """The host does not await its call, and the replay of the rest takes no time."""
    tries, begun = 0, 0
    kept: list[asyncio.Task[None]] = []
    mail = mails(lab)

    async def body() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise NotSent("the system is down", retry_after=3600)
        lab.sent.append("paid")
        return "paid"

    async def call() -> None:
        await asyncio.sleep(0.2)
        await in_hosted_run("pay").call_body("call_2", closure_tool(), {"cents": 5}, body)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        nonlocal begun
        begun += 1
        await in_host_tasks(call_of(run, mail))
        if begun == 1 or brings:
            kept.append(asyncio.create_task(call()))
        if begun == 1:
            await asyncio.sleep(1)  # so that the call begins
        return "done"

    await lab.until_suspended(desk, "x")
    await lab.pass_time(hours=2)
    async with lab.app(desk) as app:
        if brings:
            assert await app.run(desk, "x") == "done"
        else:
            with pytest.raises(ReplayDiverged, match="without reaching recorded operations"):
                await app.run(desk, "x")
            assert "diverged" in (await app.service.row("r-x")).reason
    assert lab.sent == (["ann", "paid"] if brings else ["ann"])


def namesake(lab: Lab) -> Any:
    """A tool of the app with the name and the parameters of the host's function, and another effect."""

    @tool(name="pay", idempotency=Key.forever())
    async def other_pay(cents: int) -> int:
        lab.sent.append("paid otherwise")
        return cents

    return other_pay


@virtual
async def test_a_tool_of_the_app_never_takes_the_place_of_a_function_of_the_host_that_was_approved(lab: Lab):
    async def body() -> str:
        lab.sent.append("paid")
        return "paid"

    desk = paying(lab, body, gate=Gate("true"))
    async with lab.app(desk, tools=[namesake(lab)]) as app:
        with pytest.raises(RunSuspended, match="may pay"):
            await app.run(desk, "x")
        await app.service.approve("r-x/call_1/pay#1", by="ann")
    async with lab.app(desk, tools=[namesake(lab)]) as app:
        assert await app.run(desk, "x") == ["succeeded", "paid", None]
    assert lab.sent == ["paid"]
    assert len(lab.of("r-x", r.OperationParked)) == 1


@virtual
async def test_a_result_of_a_function_of_the_host_need_not_be_one_of_a_tool_of_its_name(lab: Lab):
    async def body() -> str:
        lab.sent.append("paid")
        raise Ambiguous("the connection broke")

    desk = paying(lab, body)
    async with lab.app(desk, tools=[namesake(lab)]) as app:
        with pytest.raises(RunSuspended, match="may have landed"):
            await app.run(desk, "x")
        await app.service.resolve("r-x/call_1/pay#1", "happened", by="ann", result="paid, says ann")
        assert await app.run(desk, "x") == ["succeeded", "paid, says ann", None]
    assert lab.sent == ["paid"]


@virtual
async def test_control_flow_of_the_host_is_no_success_and_comes_back_on_replay(lab: Lab):
    calls: list[int] = []

    async def body() -> str:
        calls.append(1)
        raise HostControl("model_retry", "cents are too many", {"kind": "model_retry", "message": "cents are too many"})

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> Any:
        outcome, control = await in_hosted_run("pay").call_body("call_1", closure_tool(), {"cents": 5}, body)
        await run.sleep(timedelta(hours=1))
        return [outcome.status, outcome.code, control]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == [
            "failed", "host:model_retry", {"kind": "model_retry", "message": "cents are too many"},
        ]  # fmt: skip
    assert calls == [1]


@virtual
async def test_a_turn_is_asked_once_and_a_difference_diverges_or_is_noted(lab: Lab, caplog: pytest.LogCaptureFixture):
    asked: list[object] = []

    def desks(differs: Any) -> Any:
        @agent(run_id=f"{differs}-{{name}}")
        async def desk(run: Run, name: str) -> Any:
            async def model() -> dict[str, Any]:
                asked.append(differs)
                return {"text": "hello"}

            seen = {"messages": [1, 2, 3 if lab.changed else 0]}
            answer = await in_host_tasks(
                lambda: in_hosted_run("a model").turn("turn-1", seen, model, TurnSettings(differs))
            )
            await run.sleep(timedelta(hours=1))
            return answer["text"]

        return desk

    for differs in ("diverge", "note"):
        lab.changed = False
        desk = desks(differs)
        async with lab.app(desk) as app:
            with pytest.raises(RunSuspended):
                await app.run(desk, "x")
            await lab.pass_time(hours=1)
            lab.changed = True
            if differs == "diverge":
                with pytest.raises(ReplayDiverged, match=r'turn-1/model#1 was asked something else .*differs="note"'):
                    await app.run(desk, "x")
            else:
                assert await app.run(desk, "x") == "hello"
                assert "the recorded answer counts" in caplog.text
    assert asked == ["diverge", "note"]


@virtual
async def test_a_call_of_a_model_can_be_named_by_its_id(lab: Lab):
    mail = mails(lab)

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> list[str]:
        done = [
            await run.call("mail", {"to": "ann"}, step="call_1"),
            await run.call("mail", {"to": 5}, step="call_2"),
            await run.call("nothing", {}, step="call_3"),
        ]
        await run.sleep(timedelta(hours=1))
        return [f"{outcome.operation} {outcome.status}" for outcome in done]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
        await lab.pass_time(hours=1)
        assert await app.run(desk, "x") == ["r-x/call_1 succeeded", "r-x/mail failed", "r-x/nothing failed"]
    assert sent_steps(lab) == ["call_1"]


@virtual
async def test_the_present_run_is_found_where_its_code_runs(lab: Lab):
    @tool
    async def inside() -> str:
        with pytest.raises(OutsideRun, match="current_operation"):
            current_run()
        return "done"

    @agent(run_id="r-{name}", tools=[inside])
    async def desk(run: Run, name: str) -> str:
        assert current_run() is run
        return await inside()

    with pytest.raises(OutsideRun):
        current_run()
    with pytest.raises(OutsideRun, match="a model was called outside a run"):
        in_hosted_run("a model")
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "done"


def test_tools_are_recognised_as_coroutine_functions():
    @tool
    async def one(to: str) -> str:
        return to

    @tool
    def other(to: str, cents: int = 5) -> str:
        return to

    for made in (one, other, closure_tool()):
        assert inspect.iscoroutinefunction(made)
        assert asyncio.iscoroutinefunction(made)
    assert str(inspect.signature(other)) == "(to: str, cents: int = 5) -> str"


def test_the_package_has_the_names():
    assert beforehand.current_run is current_run
    assert beforehand.tool_from_schema is tool_from_schema
    assert issubclass(HostControl, Rejected)
