"""Handlers of aiohttp on a real port of this machine, on the event loop of the test."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(routes: Iterable[web.RouteDef], tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """Serve routes like `web.get("/keys", handler)`, and yield the URL of the server, without a slash at its end."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
