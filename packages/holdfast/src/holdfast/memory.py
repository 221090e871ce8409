"""Memory in three layers: a run's own records (`run.digest()`), knowledge about a user, and lessons."""

from holdfast.knowledge.lessons import AgentLessons
from holdfast.knowledge.memory import Lessons, UserMemory
from holdfast.model.lessons import AgentLesson
from holdfast.model.memory import Lesson, Remembered

__all__ = ["AgentLesson", "AgentLessons", "Lesson", "Lessons", "Remembered", "UserMemory"]
