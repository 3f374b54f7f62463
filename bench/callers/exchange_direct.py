"""Bare exchanges over the hand-written HTTP/1.1."""

from __future__ import annotations

from bench.callers.exchange import ExchangeCaller
from dragoman.net.direct import DirectClient


def caller(url: str) -> ExchangeCaller:
    """A caller of the agent at a URL."""
    return ExchangeCaller(DirectClient(), url)
