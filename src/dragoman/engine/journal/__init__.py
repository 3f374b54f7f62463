"""The journal of a task: writing, replay, streaming, retention."""
