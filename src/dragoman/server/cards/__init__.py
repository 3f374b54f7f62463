"""The agent cards that a server serves."""
