"""The leaf layer: logs today, traces and metrics later. Importing it makes Dragoman's log records one line each."""

from dragoman.telemetry.escaping import install

install()
