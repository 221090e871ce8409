"""Commands that drive runs: `run`, `resume` and `worker`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.errors import UsageError
from holdfast.interfaces.cli.apps import agents_for, app_of, noted_agents, reach_of, reach_option
from holdfast.interfaces.cli.common import Call, by_option, command, policy_option
from holdfast.interfaces.cli.endings import Ended, ended_of, tell_end
from holdfast.interfaces.cli.inputs import one_input
from holdfast.interfaces.cli.many import run_many
from holdfast.interfaces.cli.place import project_targets
from holdfast.interfaces.cli.status import DONE
from holdfast.interfaces.cli.targets import load_agent, load_agents
from holdfast.interfaces.cli.working import work


@command(
    "run",
    examples=(
        """holdfast run desk.py:refund_desk '{"id": "17", "order_id": "A-17"}'""",
        "holdfast run desk.py:refund_desk @ticket.json --run-id ticket-17",
        "holdfast run shop.agents:refund_desk --inputs tickets.jsonl --concurrency 50",
    ),
)
@click.argument("target")
@click.argument("given", metavar="[INPUT]", required=False)
@click.option("--inputs", metavar="FILE", help="A .jsonl or .csv file (or -): one run per line.")
@click.option("--concurrency", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="Runs at once.")
@click.option("--run-id", metavar="ID", help="Name this run; by default the agent's run_id does.")
@policy_option
async def run(
    call: Call, target: str, given: str | None, inputs: str | None, concurrency: int, run_id: str | None
) -> int:
    """Run the agent TARGET (file.py:name or module:name) on INPUT, and print its result.

    INPUT is JSON text, @file, or - for standard input. The same input is the same
    run: giving the command again joins it, goes on with it, or reports it. Of a
    file with --inputs, lines that do not fit are reported and the rest still runs.
    """
    agent = load_agent(target)
    if inputs is not None:
        if given is not None or run_id is not None:
            raise UsageError("--inputs names its runs by itself", next_step="leave out INPUT and --run-id")
        return await run_many(call, agent, inputs, concurrency)
    value = one_input(agent, given)
    async with app_of(call, [agent], create=True) as app:
        name = run_id or agent.run_id_for(value)
        ended = await ended_of(app, name, app.run(agent, value, run_id=name))
    return _tell_one(call, ended)


@command("resume", examples=("holdfast resume ticket-17", "holdfast resume ticket-17 --agent desk.py:refund_desk"))
@click.argument("run_id", metavar="RUN")
@click.option("--agent", "targets", multiple=True, metavar="TARGET", help="Where its code is, if it has moved.")
@policy_option
@by_option
async def resume(call: Call, run_id: str, targets: tuple[str, ...], by: str) -> int:
    """Let RUN go on from its record, reopening it if it stopped.

    Its code is the one named by --agent, or by [tool.holdfast] agents in
    pyproject.toml, or where it was when an app last opened the journal.
    """
    async with call.looking() as looking:
        agents = await agents_for(call, looking, run_id, targets)
    async with app_of(call, agents) as app:
        ended = await ended_of(app, run_id, app.resume(run_id, by=by))
        if (await app.service.row(run_id)).status == "undone":  # it went on, and came to the end that was ordered
            ended = Ended(run_id, "undone", DONE)
    return _tell_one(call, ended)


def _tell_one(call: Call, ended: Ended) -> int:
    tell_end(call.screen, ended)
    return ended.exit_status


@command(
    "worker",
    examples=("holdfast worker desk.py:refund_desk", "holdfast worker --once", "holdfast worker a.py:one b.py:two"),
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--concurrency", default=20, show_default=True, metavar="N", type=click.IntRange(1), help="Runs at once.")
@click.option("--once", is_flag=True, help="Drive what is due now, and end.")
@click.option("--program", default="", metavar="NAME", help="Drive this program's runs; its code is where it last was.")
@click.option("--private-webhooks", is_flag=True, help="Send webhooks to private addresses, too.")
@policy_option
@reach_option
async def worker(call: Call, targets: tuple[str, ...], concurrency: int, once: bool, **given: Any) -> int:
    """Drive whatever is due, until interrupted: abandoned runs, retries, timers, events.

    TARGETs are the agents whose runs it drives; without any, those listed under
    [tool.holdfast] agents in pyproject.toml, else those that were last opened over
    this journal. Runs of an agent of the same name in another program are not
    driven. Any number of workers may share one journal on one machine. With
    --reach it also notifies people when they are asked.
    """
    program = given["program"]
    if program and targets:
        raise UsageError("--program and TARGET both say which code to load", next_step="give one of them")
    agents = [] if program else load_agents(targets or project_targets())
    agents = agents or await noted_agents(call, program)
    if not agents:
        raise UsageError(
            f"the code of the program {program!r} is not where it was, or was never noted in this journal"
            if program
            else "a worker needs the code of the agents whose runs it drives",
            next_step="holdfast worker desk.py:refund_desk, or [tool.holdfast] agents in pyproject.toml",
        )
    reach = reach_of(given["reach"])
    async with app_of(call, agents, create=True, private_webhooks=given["private_webhooks"], reach=reach) as app:
        return await work(call, app, concurrency, once=once)
