"""Agents made of Python functions: `skill` reads a function's signature, `run` binds arguments and calls it."""
