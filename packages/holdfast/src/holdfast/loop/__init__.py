"""A ready loop around a model: `ModelLoop`, the `Model` protocol, and clients for three providers' protocols."""

from holdfast.loop.anthropic import AnthropicMessages
from holdfast.loop.compaction import Compaction
from holdfast.loop.google import GoogleGemini
from holdfast.loop.model import (
    ChatMessage,
    Model,
    ModelCall,
    ModelReply,
    ModelRequest,
    OnText,
    user,
)
from holdfast.loop.model_loop import Chat, Fallback, LoopLimits, ModelLoop
from holdfast.loop.openai import OpenAIChat
from holdfast.loop.planner import ModelPlanner

__all__ = [
    "AnthropicMessages",
    "Chat",
    "ChatMessage",
    "Compaction",
    "Fallback",
    "GoogleGemini",
    "LoopLimits",
    "Model",
    "ModelCall",
    "ModelLoop",
    "ModelPlanner",
    "ModelReply",
    "ModelRequest",
    "OnText",
    "OpenAIChat",
    "user",
]
