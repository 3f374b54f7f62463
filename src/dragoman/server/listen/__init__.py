"""Listening on a port."""
