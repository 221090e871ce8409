"""Memory in three layers: a run's own records (`run.digest()`), knowledge about a user, and lessons."""

from holdfast.knowledge.memory import Lessons, UserMemory
from holdfast.model.memory import Lesson, Remembered

__all__ = ["Lesson", "Lessons", "Remembered", "UserMemory"]
