"""Reaching others over HTTP."""
