"""What the SDKs do over gRPC that the protocol does not say, and the server understands."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from dragoman import Agent
from dragoman.testing import served
from dragoman.transports.grpc.codec import codec_of

agent = Agent("quirky")


@agent.skill
def echo(text: str) -> str:
    """Return the text."""
    return text


class Caller:
    """A caller in one package, without an SDK."""

    def __init__(self, channel: grpc.Channel, package: str) -> None:
        self._channel = channel
        self._package = package
        self._codec = codec_of(package)

    def call(self, method: str, request: str, value: dict[str, Any], response: str) -> dict[str, Any]:
        ask: Any = self._channel.unary_unary(f"/{self._package}.A2AService/{method}")
        return self._codec.decode(response, ask(self._codec.encode(request, value), timeout=20))


@pytest.fixture(scope="module")
def channel(request: pytest.FixtureRequest) -> Any:
    with served(agent, grpc="127.0.0.1:0") as url, grpc.insecure_channel(grpc_address(url)) as channel:
        yield channel


def grpc_address(url: str) -> str:
    import httpx2

    card = httpx2.get(f"{url}/.well-known/agent-card.json").json()
    return next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")


def test_an_error_of_0_3_says_its_name_before_its_text(channel: Any) -> None:
    # It is all that a2a-sdk looks at, of 0.3 and in the compatibility layer of 1.3.
    with pytest.raises(grpc.RpcError) as refusal:
        Caller(channel, "a2a.v1").call("GetTask", "GetTaskRequest", {"name": "tasks/unknown"}, "Task")
    assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
    assert refusal.value.details() == "TaskNotFoundError: Task not found"


def test_an_error_of_1_0_says_its_text_alone(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        Caller(channel, "lf.a2a.v1").call("GetTask", "GetTaskRequest", {"id": "unknown"}, "Task")
    assert refusal.value.details() == "Task not found"


def test_a_page_size_of_0_is_none(channel: Any) -> None:
    # a2a-go sends one with every request.
    page = Caller(channel, "lf.a2a.v1").call("ListTasks", "ListTasksRequest", {"pageSize": 0}, "ListTasksResponse")
    assert page["pageSize"] > 1
