"""Dragoman's client over aiohttp instead of its own HTTP/1.1."""

from __future__ import annotations

from typing import Any

from bench.callers.dragoman_client import DragomanCaller
from dragoman.net import sockets
from dragoman.net.aio import AioClient


def caller(url: str) -> DragomanCaller:
    """A caller of the agent at a URL."""
    module: Any = sockets
    module.DirectClient = AioClient
    return DragomanCaller(url)
