"""A ready loop around a model: `ModelLoop`, the `Model` protocol, clients for three providers, and routes of them."""

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
from holdfast.loop.model_loop import Chat, LoopLimits, ModelLoop
from holdfast.loop.openai import OpenAIChat
from holdfast.loop.planner import ModelPlanner
from holdfast.loop.route import Route
from holdfast.loop.route_table import RouteModel

__all__ = [
    "AnthropicMessages",
    "Chat",
    "ChatMessage",
    "Compaction",
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
    "Route",
    "RouteModel",
    "user",
]
