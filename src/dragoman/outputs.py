"""Special outputs that an agent may yield or return beside plain values."""

from dragoman.engine.execute.outputs import Ask, Done, Replace, Reply

__all__ = ["Ask", "Done", "Replace", "Reply"]
