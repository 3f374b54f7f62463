"""What an agent may yield or return beside plain values."""

from dragoman.engine.outputs import Ask, Replace, Reply

__all__ = ["Ask", "Replace", "Reply"]
