"""Completion in the shell: the scripts, and what can be completed."""
