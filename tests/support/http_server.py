"""An HTTP server on a real port of this machine that records requests and answers as a test says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, NamedTuple, Self, TypeVar

SECONDS = 60.0


class Answer(NamedTuple):
    """A status, a body and headers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Raw(NamedTuple):
    """The bytes of an answer, piece by piece, HTTP or not. The connection is closed after them."""

    pieces: Iterable[bytes]


class Request:
    """A request as it arrived. The names of its headers are in lower case."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.status = 0  # of its answer; 0 if that was raw

    def __repr__(self) -> str:
        return f"<{self.method} {self.path} {self.body[:200]!r}: {self.status}>"

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def is_accepted(self) -> bool:
        """Whether its answer was a success."""
        return 200 <= self.status < 300


R = TypeVar("R", bound=Request)
Reply = int | Answer | Raw


class RecordingServer(Generic[R]):
    """The base of servers that record their requests. Each runs from its construction on; use it with `with`.

    `answer` may be changed at any time: a status, a whole answer, or a function of the request, called in a thread.
    """

    def __init__(
        self,
        request_type: Callable[[str, str, dict[str, str], bytes], R],
        answer: Reply | Callable[[R], Reply] = 200,
        *,
        path: str = "/",
        port: int = 0,
        seconds: float = SECONDS,
    ) -> None:
        self.answer = answer
        self.seconds = seconds  # that a wait takes at most
        self.requests: list[R] = []
        self.port = port
        self._request_type = request_type
        self._path = path
        self._changed = threading.Condition()
        self._server: _Server | None = None
        self.open()

    @property
    def url(self) -> str:
        """Its address, with the path it was made with."""
        return f"http://127.0.0.1:{self.port}{self._path}"

    @property
    def accepted(self) -> list[R]:
        """The requests whose answer was a success."""
        with self._changed:
            return [each for each in self.requests if each.is_accepted]

    def open(self) -> None:
        """Listen again after `close`, at the same port."""
        self._server = _Server(self)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop listening. A request that is under way gets no answer. Does nothing when it is closed."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, count: int = 1) -> list[R]:
        """Wait until there have been so many requests, and return them all.

        Raises:
            AssertionError: there were not, in time.
        """
        self.wait_for(lambda: len(self.requests) >= count)
        return list(self.requests)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something is so, which is looked at after every request.

        Raises:
            AssertionError: it was not, in time.
        """
        with self._changed:
            assert self._changed.wait_for(condition, self.seconds), f"not so in {self.seconds} s: {self.requests}"

    async def until(self, condition: Callable[[], object]) -> None:
        """`wait_for`, without stopping the event loop."""
        await asyncio.to_thread(self.wait_for, condition)

    def respond(self, handler: _Handler) -> None:
        """Record a request and answer it."""
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = handler.rfile.read(int(headers.get("content-length", 0)))
        request = self._request_type(handler.command, handler.path, headers, body)
        if self._server is None:
            handler.close_connection = True
            return
        answer = self.answer  # that of now: who waits for this request may change it
        with self._changed:
            self.requests.append(request)
            if not callable(answer):
                request.status = _status(answer)
            self._changed.notify_all()
        if callable(answer):
            answer = answer(request)
            with self._changed:
                request.status = _status(answer)
                self._changed.notify_all()
        if isinstance(answer, Raw):
            handler.write_raw(answer)
        else:
            handler.write_answer(Answer(answer) if isinstance(answer, int) else answer)


def _status(reply: Reply) -> int:
    return reply if isinstance(reply, int) else reply.status if isinstance(reply, Answer) else 0


class HttpServer(RecordingServer[Request]):
    """A server of pages, which answers every method alike."""

    def __init__(self, answer: Reply | Callable[[Request], Reply] = 200, *, path: str = "/", port: int = 0) -> None:
        super().__init__(Request, answer, path=path, port=port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, recorder: RecordingServer[Any]) -> None:
        self.recorder = recorder
        super().__init__(("127.0.0.1", recorder.port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that was killed in the middle is no error of this server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def _respond(self) -> None:
        self.server.recorder.respond(self)

    do_GET = do_POST = do_PUT = do_DELETE = _respond

    def write_answer(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def write_raw(self, raw: Raw) -> None:
        self.close_connection = True
        with suppress(OSError):
            for piece in raw.pieces:
                self.wfile.write(piece)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""
