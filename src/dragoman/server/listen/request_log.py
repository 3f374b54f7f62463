"""Logs every HTTP request at the level debug."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.server.listen.serve import AsgiApp, Message, Receive, Send

logger = logging.getLogger("dragoman.http")


class RequestLog:
    """An ASGI app around another one, which logs method, path, status and time of each request when it is over."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] != "http" or not logger.isEnabledFor(logging.DEBUG):
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            seconds = time.perf_counter() - began
            fields: dict[str, Any] = {"method": scope["method"], "path": scope["path"], "status": status}
            text = f"{fields['method']} {fields['path']}  {status or 'no response'}  {seconds * 1000:.1f} ms"
            logger.debug("%s", text, extra={**fields, "seconds": round(seconds, 4)})
