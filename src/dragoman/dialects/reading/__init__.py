"""Decoding requests: lenient, within limits, with errors that name the field."""
