"""Execution of agents: runs, outputs, cancellation, recovery."""
