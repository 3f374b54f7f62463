"""The agent as its author writes it, several of them as a server, and both in this process."""
