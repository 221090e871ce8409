"""Conversation history: a stream of its own, said once, and cut short without losing what was done."""

from holdfast.knowledge.conversation import Conversation, History

__all__ = ["Conversation", "History"]
