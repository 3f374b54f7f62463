"""Requests to a server byte by byte, over a socket."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

SECONDS = 30
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def connected(server: Any) -> socket.socket:
    """A connection to a server."""
    return socket.create_connection(("127.0.0.1", urlsplit(server.url).port), timeout=SECONDS)


def body_of(server: Any) -> bytes:
    """The body of a request that sends a message."""
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": server.params("echo", "hello")}
    return json.dumps(rpc).encode()


def request_of(server: Any, more: bytes = b"") -> bytes:
    """A whole request that sends a message, with more header lines."""
    body = body_of(server)
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def until_closed(connection: socket.socket) -> bytes:
    """Everything the server sends until it closes the connection."""
    received = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionError:
            return received
        if not chunk:
            return received
        received += chunk


def answer_of(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head and the body of one answer with a length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head, body
