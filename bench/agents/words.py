"""What the agents say. Standard library only: it runs in every environment."""

from __future__ import annotations

CARD_NAME = "bench"
QUESTION = "How many?"


def chunk_text(number: int) -> str:
    """The text of a chunk, about as long as a word."""
    return f"w{number:05d} "
