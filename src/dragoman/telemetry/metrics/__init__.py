"""Metrics: `METRICS` has them all, and `METRICS.on` says whether anything is recorded."""

from dragoman.telemetry.metrics.catalog import METRICS as METRICS
