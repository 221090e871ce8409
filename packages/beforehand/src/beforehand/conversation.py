"""Conversation history: a stream whose messages are appended once, and compacted without losing what was done."""

from beforehand.knowledge.conversation import Conversation, History

__all__ = ["Conversation", "History"]
