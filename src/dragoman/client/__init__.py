"""Calling agents."""
