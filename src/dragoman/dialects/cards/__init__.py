"""Agent cards: presented to, and read from, every version."""
