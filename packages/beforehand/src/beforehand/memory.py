"""Memory in three layers: a run's own records (`run.digest()`), knowledge about a user, and lessons."""

from beforehand.knowledge.lessons import AgentLessons
from beforehand.knowledge.memory import Lessons, UserMemory
from beforehand.model.lessons import AgentLesson
from beforehand.model.memory import Lesson, Remembered

__all__ = ["AgentLesson", "AgentLessons", "Lesson", "Lessons", "Remembered", "UserMemory"]
