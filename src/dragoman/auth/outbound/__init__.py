"""The credentials that a client sends."""
