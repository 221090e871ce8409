"""The outside world of the crash and race tests: a process of its own that counts effects and outlives every kill.

`python witness.py LOG` serves JSON lines on a loopback port, which it prints; one connection carries one request.
Requests are handled one at a time, in the order in which their bytes arrive, so that a request that was sent
before a process died is always applied before one of the process that took over (unless a rule says otherwise).

What workers ask for (`kind`): `read` and `model` answer differently each time; `natural` sets a state; `keyed`
dedupes on the key; `mail` appends under a marker that `search` finds; `plain` only counts. What tests ask for:
`history` (everything that arrived, and the state), `rule` (how requests of a kind are treated: they land late, or are
held before or after they land), `await` (answers when enough requests of a kind have arrived), `release` (lets held
ones go on), `forget`.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path


class World:
    """What one case did to the world."""

    def __init__(self):
        self.requests = []
        self.state = {}
        self.receipts = {}
        self.mails = {}
        self.counts = Counter()
        self.rules = {}
        self.changed = asyncio.Condition()
        self.released = set()

    def snapshot(self):
        return {
            "requests": self.requests,
            "state": self.state,
            "receipts": self.receipts,
            "mails": self.mails,
            "counts": dict(self.counts),
        }

    def apply(self, request):
        """Do what was asked. Whatever this returns is the truth that the workers have to report."""
        kind, name = request["kind"], request.get("name", "")
        self.counts[f"{kind}:{name}"] += 1
        count = self.counts[f"{kind}:{name}"]
        match kind:
            case "natural":
                self.state[name] = request["value"]
                return request["value"]
            case "keyed":
                return self.receipts.setdefault(request["key"], f"receipt-{len(self.receipts) + 1}")
            case "mail":
                self.mails.setdefault(request["key"], []).append(name)
                return f"mail-{name}"
            case "search":
                return self.mails.get(request["key"])
            case _:
                return f"{kind}-{name}-{count}"


class Witness:
    """All cases together, and a log of every request for the reader of a failure."""

    def __init__(self, log):
        self.worlds = {}
        self.log = log

    async def serve(self, reader, writer):
        try:
            line = await reader.readline()
            if line:
                answer = await self.answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            return  # the worker was killed, and its effect stands; or the tests are over
        finally:
            writer.close()

    async def answer(self, request):
        case = request["case"]
        world = self.worlds.setdefault(case, World())
        match request["kind"]:
            case "history":
                return world.snapshot()
            case "forget":
                return self.worlds.pop(case).snapshot()
            case "rule":
                world.rules[request["of"]] = request["rule"]
                return True
            case "release":
                world.released.add(request["of"])
                async with world.changed:
                    world.changed.notify_all()
                return True
            case "await":
                return await self.awaited(world, request["of"], request["count"])
            case _:
                return await self.effect(world, request)

    async def awaited(self, world, kind, count):
        async with world.changed:
            await world.changed.wait_for(lambda: sum(r["kind"] == kind for r in world.requests) >= count)
        return True

    async def effect(self, world, request):
        """Note the request, hold it where a rule says so, apply it, answer."""
        self.log.write(json.dumps(request) + "\n")
        self.log.flush()
        world.requests.append({**request, "at": time.time_ns() // 1_000_000})
        rule = world.rules.get(request["kind"], {})
        async with world.changed:
            world.changed.notify_all()
        await asyncio.sleep(rule.get("lands_after_ms", 0) / 1000)
        if rule.get("hold") == "before":
            await self.released(world, request["kind"])
        answer = world.apply(request)
        if rule.get("hold") == "after":
            await self.released(world, request["kind"])
        return answer

    async def released(self, world, kind):
        async with world.changed:
            await world.changed.wait_for(lambda: kind in world.released)


async def main(log):
    server = await asyncio.start_server(Witness(log).serve, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # the process that started us is gone when this ends


if __name__ == "__main__":
    with Path(sys.argv[1]).open("a", encoding="utf-8") as requests:
        asyncio.run(main(requests))
