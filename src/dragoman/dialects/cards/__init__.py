"""Agent cards: written for and read from every version, and validated."""
