"""Listening on a port with uvicorn: HTTP, TLS and shutdown."""
