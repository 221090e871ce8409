"""The names of attributes and metrics, as OpenTelemetry's conventions for generative AI have them.

The conventions are in development, so names may still change. This module alone names them, and `VERSION` says which
release it follows. Names of our own begin with `beforehand.`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from beforehand.loop.model import ModelReply

VERSION: Final = "1.41.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{VERSION}"

# --- operations, which begin the names of spans ----------------------------------------------------------------------
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
# Without a convention:
VERIFY: Final = "verify"
WAIT: Final = "wait"
ASK_PERSON: Final = "ask_person"

# --- attributes ------------------------------------------------------------------------------------------------------
OPERATION: Final = "gen_ai.operation.name"
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER: Final = "gen_ai.provider.name"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
ERROR_TYPE: Final = "error.type"
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""The attribute of each count of a `Usage` that has one."""

RUN: Final = "beforehand.run"
STEP: Final = "beforehand.step"
ATTEMPT: Final = "beforehand.attempt"
END: Final = "beforehand.attempt.end"
VERDICT: Final = "beforehand.verification.verdict"
STATUS: Final = "beforehand.run.status"
FUNCTION: Final = "beforehand.decision.function"
REASON: Final = "beforehand.reason"
QUEUE: Final = "beforehand.queue"

OTHER: Final = "_OTHER"
"""The value of a provider, and the class of an error, that has no name."""

# --- metrics, and the buckets that the conventions advise -------------------------------------------------------------
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
TOKEN_BUCKETS: Final = tuple(4.0**power for power in range(14))
DURATION: Final = "gen_ai.client.operation.duration"
DURATION_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))


def message_text(reply: ModelReply) -> str:
    """An answer in the form that the conventions give to messages, as JSON."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": reply.text}] if reply.text else []
    parts += [{"type": "tool_call", "id": one.id, "name": one.tool, "arguments": one.arguments} for one in reply.calls]
    message = {"role": "assistant", "parts": parts, "finish_reason": reply.stop}
    return msgspec.json.encode([message]).decode()
