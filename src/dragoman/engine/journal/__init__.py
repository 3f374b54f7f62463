"""The log of one task: written, replayed, followed, forgotten."""
