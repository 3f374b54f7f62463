"""The cards that a server shows."""
