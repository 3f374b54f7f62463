"""The tools that a host sees."""
