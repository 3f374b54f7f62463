"""Calls of a client of an earlier version: the bytes it sent, and the bytes it was answered with."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import NamedTuple

SECONDS = 60
# What of a response's headers counts. The others change with the day and the length.
HEADERS = ("content-type", "www-authenticate", "access-control-allow-origin", "location", "a2a-version")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
# How long a client should wait before it connects again is chosen at random.
_RETRY = re.compile(r"^retry: \d+$", re.MULTILINE)
# Where a page begins: opaque, and each store's own.
_PAGE = re.compile(r'"nextPageToken":"[^"]+"')
# The ids of a tool server's tasks: milliseconds.
_MILLISECONDS = re.compile(r"\b\d{13}\b")


class Response(NamedTuple):
    """A status, some headers, and the bytes of the body as text."""

    status: int
    headers: dict[str, str]
    body: str


class Exchange(NamedTuple):
    """A response, and the cookie that came with it."""

    response: Response
    cookie: str

    @property
    def body(self) -> str:
        """The body of the response."""
        return self.response.body


class Call(NamedTuple):
    """One request, as it stood on the wire. `{cookie}` in a header is the cookie of a user who has logged in."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: str = ""

    def send(self, port: int, cookie: str = "") -> Response:
        """Send it, and read the response to its end."""
        return self.exchange(port, cookie).response

    def exchange(self, port: int, cookie: str = "") -> Exchange:
        """Send it, and read the response with its cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            headers = {name: value.replace("{cookie}", cookie) for name, value in self.headers.items()}
            connection.request(self.method, self.path, self.body.encode() if self.body else None, headers)
            response = connection.getresponse()
            kept = {name: response.headers[name] for name in HEADERS if name in response.headers}
            given = response.headers.get("set-cookie", "").partition(";")[0]
            return Exchange(Response(response.status, kept, response.read().decode()), given)
        finally:
            connection.close()


class RecordedCall(NamedTuple):
    """A call and its response at the time."""

    call: Call
    response: Response


def normalized(response: Response, stored: bytes) -> Response:
    """A response in which ids and times that are not in the stored file have names, in the order they appear."""
    names: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        value = found[0]
        return value if value.encode() in stored else names.setdefault(value, f"<id-{len(names) + 1}>")

    body = _MILLISECONDS.sub(name, _UUID.sub(name, response.body))
    body = _TIME.sub(lambda found: found[0] if found[0].encode() in stored else "<time>", body)
    body = _PAGE.sub('"nextPageToken":"<page>"', _RETRY.sub("retry: <ms>", body))
    return response._replace(body=body)


def load(path: Path) -> list[RecordedCall]:
    """Read recorded calls."""
    return [
        RecordedCall(Call(**entry["call"]), Response(**entry["response"]))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    ]


def dump(recorded: list[RecordedCall]) -> str:
    """Spell recorded calls, to be read by people, too."""
    entries = [{"call": call._asdict(), "response": response._asdict()} for call, response in recorded]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
