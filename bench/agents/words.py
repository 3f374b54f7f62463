"""What the agents say. Standard library only: it runs in every environment."""

from __future__ import annotations

CARD_NAME = "bench"
QUESTION = "How many?"
# What a text begins with that is to be looked up.
TOOL = "tool: "
# A message of the length a person types.
_FILLER = " The quick brown fox jumps over the lazy dog, and then once more, since nobody saw it the first time."


def echo_text(number: int) -> str:
    """A text to be echoed."""
    return f"echo {number:012d}{_FILLER}"


def chunk_text(number: int) -> str:
    """The text of a chunk, about as long as a word."""
    return f"w{number:05d} "


def adk_chunk_text(number: int) -> str:
    """The text of a chunk that an ADK agent streams: six bytes, as long as a token."""
    return f"w{number:04d} "
