"""Clients that are compared: each calls the same agent as its own documentation says."""
