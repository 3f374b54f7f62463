"""The page of the console and its files, which are part of the package, as responses kept in memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from dragoman.engine.execute.threads import in_thread

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from dragoman.transports.http import Header, Request

PAGE = "index.html"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
    ".json": b"application/json",
    ".txt": b"text/plain; charset=utf-8",
    ".md": b"text/markdown; charset=utf-8",
}
# No inline code, nothing of another origin; blobs are files of agents, which frames show without rights.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-src blob:; media-src blob:; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_UNUSED_FEATURES = (
    "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), hid=(), magnetometer=(), "
    "microphone=(), midi=(), payment=(), serial=(), usb=()"
)
_FILE_HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
PAGE_HEADERS: tuple[Header, ...] = (
    *_FILE_HEADERS,
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: with it browsers hide the Origin of a form, which the login page checks.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", _UNUSED_FEATURES.encode()),
)
# Files are checked at each use, and are not sent again while they are the same: an upgrade is seen at once.
_REVALIDATE = (b"cache-control", b"no-cache")
BY_ACCEPT = (b"vary", b"accept")


class FileResponse(NamedTuple):
    """A response with a file of the console."""

    status: int
    body: bytes
    content_type: bytes
    headers: tuple[Header, ...]


class StaticFile(NamedTuple):
    """A file, its media type, a tag of its content, and its content compressed; empty where that is of no use."""

    body: bytes
    content_type: bytes
    etag: str
    compressed: bytes = b""

    def respond(self, request: Request, *, varies: bool = False) -> FileResponse:
        """Build the response: 304 without a body where the browser has this content.

        It `varies` where other clients see something else at the same path.
        """
        safety = PAGE_HEADERS if self.content_type == _TYPES[".html"] else _FILE_HEADERS
        vary = b"accept, accept-encoding" if varies else b"accept-encoding"
        headers = (*safety, _REVALIDATE, (b"etag", self.etag.encode()), (b"vary", vary))
        cached = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if self.etag in cached or cached == {"*"}:
            return FileResponse(304, b"", self.content_type, headers)
        if self.compressed and "gzip" in request.headers.get("accept-encoding", ""):
            return FileResponse(200, self.compressed, self.content_type, (*headers, (b"content-encoding", b"gzip")))
        return FileResponse(200, self.body, self.content_type, headers)


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the files by their path, as in `app/main.js`. Only these are served, whatever a request names."""
    # Imported here: it takes longer than the rest of this module, and most servers never show the page.
    from importlib.resources import files

    return dict(_read(files("dragoman.console") / "static", ""))


async def load_files() -> Mapping[str, StaticFile]:
    """Return `static_files`. The first time they are read and compressed in a thread, which takes a while."""
    return static_files() if static_files.cache_info().currsize else await in_thread(static_files)


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
        elif content_type := _TYPES.get(entry.name[entry.name.rfind(".") :]):
            body = entry.read_bytes()
            tag = f'"{sha256(body).hexdigest()[:24]}"'
            compressed = gzip.compress(body)
            is_smaller = len(compressed) < len(body)
            yield f"{prefix}{entry.name}", StaticFile(body, content_type, tag, compressed if is_smaller else b"")


def prefers_html(accept: str) -> bool:
    """True for the Accept of a browser that opens a page: it names HTML, and nothing of JSON that it likes as much."""
    weights = dict(map(_weight, accept.split(",")))
    return weights.get("text/html", 0.0) > max(weights.get(kind, 0.0) for kind in _JSON_TYPES)


_JSON_TYPES = ("application/json", "application/a2a+json", "text/event-stream")


def _weight(accepted: str) -> tuple[str, float]:
    """Return a media type of Accept, and its weight from 0 to 1."""
    kind, *parameters = (part.strip().lower() for part in accepted.split(";"))
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return kind, float(parameter[2:])
            except ValueError:
                return kind, 0.0
    return kind, 1.0
