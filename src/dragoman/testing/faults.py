"""Fault injection: an ASGI app that misbehaves, to test clients."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Unpack

from dragoman.testing.served import app_of

if TYPE_CHECKING:
    from dragoman.server.config.keywords import SettingKeywords
    from dragoman.testing.served import AppSource, ASGIApp, Message, Receive, Send

GARBAGE = b"\x00\xff<this is not JSON>"

_EVENT_END = re.compile(rb"(?>\r\n|\n|\r){2}")
_DATA_LINE = re.compile(rb"(?<![^\r\n])data(?=[:\r\n])")


def faults(
    target: AppSource | ASGIApp,
    *,
    cut_after: int | None = None,
    delay: float | None = None,
    garbage: bool = False,
    **settings: Unpack[SettingKeywords],
) -> ASGIApp:
    """Wrap the app of an agent into one with these faults, for `served` or a client.

    Args:
        target: the agent or server, or an ASGI app.
        cut_after: the connection of every event stream is closed after that many events.
        delay: every response is sent that many seconds late; the work itself is done at once.
        garbage: every POST gets a response that is not JSON, and has no effect.
        settings: the settings of `agent.app()`; without `store`, tasks are kept in memory. An ASGI app takes none.
    """
    app = app_of(target, settings)

    async def faulty(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if delay is not None:
            send = _delayed_send(send, delay)
        if garbage and scope["method"] == "POST":
            await _answer_garbage(receive, send)
        elif cut_after is not None:
            await _cut_stream(app, scope, receive, send, cut_after)
        else:
            await app(scope, receive, send)

    return faulty


def _delayed_send(send: Send, seconds: float) -> Send:
    async def delayed(message: Message) -> None:
        if message["type"] == "http.response.start":
            await asyncio.sleep(seconds)
        await send(message)

    return delayed


async def _answer_garbage(receive: Receive, send: Send) -> None:
    # The request is read first: a caller that is still sending might never read the response.
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(GARBAGE)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": GARBAGE})


async def _cut_stream(app: ASGIApp, scope: Message, receive: Receive, send: Send, events: int) -> None:
    counter: _EventCounter | None = None

    async def cutting(message: Message) -> None:
        nonlocal counter
        if message["type"] == "http.response.start" and _is_event_stream(message):
            counter = _EventCounter(events)
        if counter is None or message["type"] != "http.response.body":
            await send(message)
            return
        if counter.remaining:
            body = counter.take(message.get("body", b""))
            more = message.get("more_body", False)
            await send({**message, "body": body, "more_body": more or not counter.remaining})
        if not counter.remaining:
            raise _cut_error()

    await app(scope, receive, cutting)
    # The app may have caught the error; the server must still see one, or it would end the response properly.
    if counter is not None and not counter.remaining:
        raise _cut_error()


def _cut_error() -> ConnectionResetError:
    return ConnectionResetError("the stream was cut on purpose")


def _is_event_stream(start: Message) -> bool:
    headers = start.get("headers", ())
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


class _EventCounter:
    """Counts the events of a stream across chunks; comments, such as heartbeats, do not count."""

    def __init__(self, events: int) -> None:
        self.remaining = events
        self._open = b""

    def take(self, body: bytes) -> bytes:
        """Return the part of the chunk up to the last allowed event."""
        text = self._open + body
        start = 0
        for end in _EVENT_END.finditer(text):
            if _DATA_LINE.search(text, start, end.end()):
                self.remaining -= 1
            start = end.end()
            if not self.remaining:
                return text[len(self._open) : start]
        self._open = text[start:]
        return body
