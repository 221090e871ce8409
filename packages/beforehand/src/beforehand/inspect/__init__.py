"""Reading a journal: timelines, explanations, replay, verification, export. Nothing here changes a run."""
