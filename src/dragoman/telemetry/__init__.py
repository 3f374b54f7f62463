"""Logging and trace context. Importing this package installs the filter that keeps log records on one line."""

from dragoman.telemetry.escaping import install

install()
