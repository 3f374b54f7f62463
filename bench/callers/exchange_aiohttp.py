"""Bare exchanges over aiohttp."""

from __future__ import annotations

from bench.callers.exchange import ExchangeCaller
from dragoman.net.aio import AioClient


def caller(url: str) -> ExchangeCaller:
    """A caller of the agent at a URL."""
    return ExchangeCaller(AioClient(), url)
