"""Bad input for one host: `BEFOREHAND_TEST_HOST=langchain python -m tests.hosts.bad_input` prints a row of the table.

Each cell is a run in a directory of its own. It says what is wrong; nothing means that the input got an error of its
own with a next step that works, and that nothing was sent.
"""

import asyncio
import importlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from beforehand import Beforehand, Run, RunSuspended, agent, tool
from beforehand.errors import BeforehandError
from tests.hosts.script import Call, Offered, Script

HOST = os.environ["BEFOREHAND_TEST_HOST"]
FIVE = Call("call_1", "pay", {"cents": 5})
LIMIT_S = 60
NO_ANSWER = {
    "pydantic_ai": "UnexpectedModelBehavior: Exceeded maximum output retries", "langchain": "DecisionFailed: ",
    "openai_agents": "", "google_adk": "", "crewai": "the model gave no answer",
}  # fmt: skip
"""How each host takes an answer with nothing in it; two of them take it for an empty text."""


class Trial:
    """One run of a host, over a journal on disk, and what it sent."""

    def __init__(self, directory: Path) -> None:
        self.journal = directory / "desk.db"
        self.sent: list[int] = []
        self.swallows = False

    async def pay(self, cents: int) -> str:
        """Pay."""
        self.sent.append(cents)
        return f"paid {cents}"

    def offered(self, name: str = "pay", **more: Any) -> Offered:
        async def pay(cents: int) -> str:
            """Pay."""
            return await self.pay(cents)

        return Offered(pay, name, **more)

    async def run(
        self, script: Script, *offered: Offered, tools: Any = (), then: Any = None, again: bool = False
    ) -> str:
        """How the run ends, as its caller sees it."""
        talk = importlib.import_module(f"tests.hosts.{HOST}").talk

        @agent(tools=list(tools))
        async def desk(run: Run, task: str) -> str:
            try:
                return str(await talk(script, offered, task))
            except BaseException:
                if self.swallows:
                    return "swallowed"
                raise

        async with Beforehand(self.journal, agents=[desk], recover=False) as app:
            try:
                ended = app.resume("r1", by="ann") if again else app.run(desk, "go", run_id="r1")
                return str(await asyncio.wait_for(ended, LIMIT_S))
            except RunSuspended as waits:
                if then is not None:
                    await then(app)
                return f"waits: {waits.message}"
            except Exception as error:  # noqa: BLE001 - the cell looks at it
                if isinstance(error, BeforehandError) and not error.next_step:
                    return f"{type(error).__name__} without a next step: {error}"
                return f"{type(error).__name__}: {error}"


async def approve(app: Beforehand) -> None:
    history = await app.service.history("r1")
    (step,) = [step for step, one in history.operations.items() if one.phase not in ("succeeded", "failed")]
    await app.service.approve(f"r1/{step}", by="ann")


def has(text: str, *wanted: str) -> None:
    assert all(one in text for one in wanted), text


async def a_name_that_a_tool_of_the_app_has_too(trial: Trial) -> None:
    @tool
    async def pay(cents: int) -> int:
        raise AssertionError("the app's tool was called in place of the host's function")

    offered = trial.offered(asks=True)
    has(await trial.run(Script([FIVE]), offered, tools=[pay], then=approve), "waits: ", "may pay")
    has(await trial.run(Script([FIVE]), offered, tools=[pay]), "paid 5")
    assert trial.sent == [5], trial.sent


async def a_name_that_only_the_contract_has(trial: Trial) -> None:
    @tool(name="pay")
    async def send_money(cents: int) -> str:
        """Pay."""
        return await trial.pay(cents)

    has(await trial.run(Script([FIVE]), Offered(send_money, None), tools=[send_money]), "paid 5")
    assert trial.sent == [5], trial.sent


async def a_condition_beside_the_approval_of_the_host(trial: Trial) -> None:
    if find_spec("cel") is None:
        return  # conditions are an extra, which the environments of hosts are without
    offered = trial.offered(asks=True, clauses={"gate": "cents > 100"})
    has(await trial.run(Script([FIVE]), offered, then=approve), "waits: ", "may pay")
    has(await trial.run(Script([FIVE]), offered), "paid 5")
    assert trial.sent == [5], trial.sent


async def a_read_that_the_host_asks_about(trial: Trial) -> None:
    offered = trial.offered(asks=True, clauses={"effect": "read"})
    has(await trial.run(Script([FIVE]), offered), "a read")
    assert trial.sent == [], trial.sent


async def a_name_that_cannot_name_a_step(trial: Trial) -> None:
    said = await trial.run(Script([Call("call_1", "a/b", {"cents": 5})]), trial.offered("a/b"))
    if HOST == "crewai":  # it writes names its own way
        assert (said, trial.sent) == ("paid 5", [5])
        return
    has(said, "a/b", "cannot name a tool")
    assert trial.sent == [], (said, trial.sent)


async def no_name(trial: Trial) -> None:
    said = await trial.run(Script([Call("call_1", "", {"cents": 5})]), trial.offered(""))
    assert trial.sent == [], (said, trial.sent)


async def a_schema_that_is_no_schema(trial: Trial) -> None:
    if HOST in {"google_adk", "crewai"}:
        return  # their tools have no schema of the user's
    said = await trial.run(Script([FIVE]), trial.offered(schema={"type": "array"}))
    has(said, "schema")
    assert trial.sent == [], (said, trial.sent)


async def ids_that_repeat(trial: Trial) -> None:
    turns = [[FIVE, Call("call_1", "pay", {"cents": 6})], [Call("call_1", "pay", {"cents": 7})]]
    said = await trial.run(Script(*turns), trial.offered())
    assert sorted(trial.sent) == [5, 6, 7], (said, trial.sent)
    has(said, "paid 7")


async def ids_that_cannot_name_a_step(trial: Trial) -> None:
    turns = [[Call(one, "pay", {"cents": at}) for at, one in enumerate(("", "a/b", "#1", "x" * 400))]]
    said = await trial.run(Script(*turns), trial.offered())
    assert sorted(trial.sent) == [0, 1, 2, 3], (said, trial.sent)


async def code_that_swallows_the_suspension(trial: Trial) -> None:
    trial.swallows = True
    has(await trial.run(Script([FIVE]), trial.offered(asks=True), then=approve), "waits: ", "may pay")
    trial.swallows = False
    has(await trial.run(Script([FIVE]), trial.offered(asks=True)), "paid 5")
    assert trial.sent == [5], trial.sent


async def arguments_that_do_not_fit(trial: Trial) -> None:
    wrong = [Call("call_1", "pay", {"cents": "many"}), Call("call_2", "pay", {}), Call("call_3", "pay", {"euros": 5})]
    checked = wrong[1:] if HOST == "google_adk" else wrong  # it does not look at the types of arguments
    said = await trial.run(Script(checked), trial.offered())
    has(said, "Invalid JSON input for tool pay" if HOST == "openai_agents" else "cents")
    assert trial.sent == [], (said, trial.sent)


async def arguments_that_do_not_fit_a_declared_tool(trial: Trial) -> None:
    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        return await trial.pay(cents)

    wrong = [Call("call_1", "pay", {"cents": "many"}), Call("call_2", "pay", {}), Call("call_3", "pay", {"euros": 5})]
    said = await trial.run(Script(wrong), Offered(pay, "pay"), tools=[pay])
    has(said, "cents")
    assert trial.sent == [], (said, trial.sent)


async def arguments_that_are_too_large(trial: Trial) -> None:
    async def note(text: str) -> str:
        """Note."""
        return await trial.pay(len(text))

    large = Call("call_1", "note", {"text": "x" * 2_000_000})
    has(await trial.run(Script([large]), Offered(note, "note")), "larger than 1048576 bytes", "Nothing was changed")
    assert trial.sent == [], trial.sent


async def arguments_that_are_too_large_for_a_declared_tool(trial: Trial) -> None:
    @tool
    async def note(text: str) -> str:
        """Note."""
        return await trial.pay(len(text))

    large = Call("call_1", "note", {"text": "x" * 2_000_000})
    said = await trial.run(Script([large]), Offered(note, "note"), tools=[note])
    has(said, "larger than 1048576 bytes", "Nothing was changed")
    assert trial.sent == [], trial.sent


async def a_tool_that_the_app_does_not_have(trial: Trial) -> None:
    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        return await trial.pay(cents)

    has(await trial.run(Script([FIVE]), Offered(pay, "pay")), "UnknownTool", "@agent(tools=[...])")
    assert trial.sent == [], trial.sent


async def no_such_tool(trial: Trial) -> None:
    said = await trial.run(Script([Call("call_1", "nothing_such", {})]), trial.offered())
    has(said, "Tool not found" if HOST == "crewai" else "nothing_such")
    assert trial.sent == [], (said, trial.sent)


async def no_answer(trial: Trial) -> None:
    said = await trial.run(Script(None, None, None, None, None, None), trial.offered())
    assert trial.sent == [], (said, trial.sent)
    has(said, NO_ANSWER[HOST])


async def clauses_that_do_not_exist(trial: Trial) -> None:
    has(await trial.run(Script([FIVE]), trial.offered(clauses={"twice": True})), "ContractError", "does not take twice")
    assert trial.sent == [], trial.sent


async def a_tool_that_redacts(trial: Trial) -> None:
    @tool(redact=["cents"])
    async def pay(cents: int) -> str:
        """Pay."""
        return await trial.pay(cents)

    script = Script([FIVE])
    has(await trial.run(script, Offered(pay, "pay"), tools=[pay]), "ContractError", "pay redacts cents", "Secret(")
    assert (trial.sent, script.asked) == ([], 0), (trial.sent, script.asked)


async def a_function_that_redacts(trial: Trial) -> None:
    script = Script([FIVE])
    has(await trial.run(script, trial.offered(clauses={"redact": ["cents"]})), "ContractError", "pay redacts cents")
    assert (trial.sent, script.asked) == ([], 0), (trial.sent, script.asked)


async def a_key_that_is_missing(trial: Trial) -> None:
    missing = Script(RuntimeError("Missing credentials. Please pass an `api_key`"))
    said = await trial.run(missing, trial.offered())
    has(said, "UsageError: the model cannot be asked", "api_key", "resume the run")
    assert (trial.sent, missing.asked) == ([], 1), (said, trial.sent, missing.asked)
    has(await trial.run(Script([FIVE]), trial.offered(), again=True), "paid 5")
    assert trial.sent == [5], trial.sent


CELLS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__.replace("_", " "): one
    for one in (
        a_name_that_a_tool_of_the_app_has_too, a_name_that_only_the_contract_has, a_condition_beside_the_approval_of_the_host,
        a_read_that_the_host_asks_about, a_name_that_cannot_name_a_step, no_name, a_schema_that_is_no_schema,
        ids_that_repeat, ids_that_cannot_name_a_step, code_that_swallows_the_suspension, arguments_that_do_not_fit,
        arguments_that_do_not_fit_a_declared_tool, arguments_that_are_too_large,
        arguments_that_are_too_large_for_a_declared_tool, a_tool_that_the_app_does_not_have, no_such_tool, no_answer,
        clauses_that_do_not_exist, a_tool_that_redacts, a_function_that_redacts, a_key_that_is_missing,
    )
}  # fmt: skip


def wrong(name: str) -> str:
    """What is wrong in this cell; empty if nothing is."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            asyncio.run(CELLS[name](Trial(Path(directory))))
        except BaseException as error:  # noqa: BLE001 - the cell says what it was
            return "".join(traceback.format_exception(error, limit=-2))
    return ""


if __name__ == "__main__":
    print(json.dumps({name: wrong(name) for name in (sys.argv[1:] or CELLS)}))
