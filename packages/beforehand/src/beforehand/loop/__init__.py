"""A ready loop around a model: `ModelLoop`, the `Model` protocol, clients for three providers, and routes of them."""

from beforehand.loop.anthropic import AnthropicMessages
from beforehand.loop.compaction import Compaction
from beforehand.loop.google import GoogleGemini
from beforehand.loop.model import (
    ChatMessage,
    Model,
    ModelCall,
    ModelReply,
    ModelRequest,
    OnText,
    user,
)
from beforehand.loop.model_loop import Chat, LoopLimits, ModelLoop
from beforehand.loop.openai import OpenAIChat
from beforehand.loop.planner import ModelPlanner
from beforehand.loop.route import Route
from beforehand.loop.route_table import RouteModel
from beforehand.model.usage import Usage

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
    "Usage",
    "user",
]
