"""The dispatcher of the console's API: who may call what, and what errors look like."""

from __future__ import annotations

import json
import logging
from collections.abc import MutableMapping, Sequence
from typing import Any

import pytest

from dragoman import User
from dragoman.console.access import Viewer
from dragoman.console.api import ANY, ApiRoute, ConsoleApi
from dragoman.engine.quota import MemoryQuota
from dragoman.transports.http import Request, SharedResources

STRANGER = Viewer()
ANN = Viewer(User("ann"))
NO_LIMITS = SharedResources()
ADMIN = Viewer(None, admin=True, token=True)


class Answer:
    """A request to the API, and what it answered."""

    def __init__(self, *routes: ApiRoute) -> None:
        self.api = ConsoleApi(routes)
        self.sent: list[MutableMapping[str, Any]] = []

    async def to(
        self,
        method: str,
        path: str,
        viewer: Viewer = STRANGER,
        kind: str = "application/json",
        shared: SharedResources = NO_LIMITS,
    ) -> Answer:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: MutableMapping[str, Any]) -> None:
            self.sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": [(b"content-type", kind.encode())]}
        segments = path.split("/")
        request = Request(scope, receive, ["console", "api", *segments], "", shared)
        await self.api.serve(viewer, request, segments, send)
        return self

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def json(self) -> Any:
        return json.loads(self.sent[1]["body"])


async def echo(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
    return {"who": viewer.user.id if viewer.user else None, "path": list(segments)}


def raising(error: Exception) -> ApiRoute:
    async def fail(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
        raise error

    return ApiRoute("GET", ("fail",), "public", fail)


async def test_the_first_route_whose_path_fits_is_called_with_the_segments() -> None:
    routes = (
        ApiRoute("GET", ("tasks", ANY, "journal"), "public", echo),
        ApiRoute("GET", ("tasks", ANY), "public", echo),
    )
    answer = await Answer(*routes).to("GET", "tasks/a b/journal", ANN)
    assert (answer.status, answer.json) == (200, {"who": "ann", "path": ["tasks", "a b", "journal"]})
    assert answer.headers[b"cache-control"] == b"no-store"
    assert answer.headers[b"x-content-type-options"] == b"nosniff"
    missing = await Answer(*routes).to("GET", "tasks/a/journal/b")
    assert (missing.status, missing.json["reason"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("access", "viewer", "status"),
    [
        ("public", STRANGER, 200),
        ("viewer", STRANGER, 401),
        ("viewer", ANN, 200),
        ("viewer", ADMIN, 200),
        ("admin", STRANGER, 401),
        ("admin", ANN, 403),
        ("admin", ADMIN, 200),
    ],
)
async def test_a_route_checks_access(access: Any, viewer: Viewer, status: int) -> None:
    answer = await Answer(ApiRoute("GET", ("x",), access, echo)).to("GET", "x", viewer)
    assert answer.status == status
    if status != 200:
        assert set(answer.json) == {"error", "reason"}


async def test_a_result_that_is_not_json_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
        return {"text": "\ud800"}

    answer = await Answer(ApiRoute("GET", ("x",), "public", handler)).to("GET", "x")
    assert (answer.status, answer.json["reason"]) == (500, "INTERNAL_ERROR")


async def test_a_large_response_waits_for_no_memory_that_others_use() -> None:
    memory = MemoryQuota(1_000_000, 1_000_000)
    memory.count("somebody", 900_000)

    async def handler(viewer: Viewer, request: Request, segments: Sequence[str]) -> Any:
        return {"text": "x" * 500_000}

    answer = await Answer(ApiRoute("GET", ("x",), "public", handler)).to("GET", "x", shared=SharedResources(memory))
    assert (answer.status, answer.json["reason"]) == (503, "RESOURCE_EXHAUSTED")


async def test_an_unexpected_error_is_logged_and_hidden(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "dragoman.http"):
        answer = await Answer(raising(ValueError("the password is xyzzy"))).to("GET", "fail")
    assert answer.status == 500
    assert "xyzzy" not in answer.sent[1]["body"].decode()
    assert "xyzzy" in caplog.text
