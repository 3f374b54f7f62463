"""Ownership: which process may write a task."""
