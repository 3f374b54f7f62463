"""promtool: the rules and the configuration are valid, the alerts fire when they should, and metrics are named well."""

from __future__ import annotations

import asyncio

import pytest
from interop.prometheus_server import ABSENT, find_program, promtool, read

from dragoman import Agent, Client
from dragoman.testing import served

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_program("promtool") is None, reason=ABSENT),
]


def test_the_rules_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml")


def test_the_example_of_a_configuration_is_valid() -> None:
    assert "SUCCESS" in promtool("check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")


def test_the_alerts_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


async def test_the_metrics_of_a_server_are_named_as_prometheus_wants_it() -> None:
    agent = Agent("echo", description="Echoes")

    @agent.skill
    async def say(text: str) -> str:
        return text

    app = agent.app(metrics=0, store="memory:")
    with served(app) as url:
        async with Client(url) as client:
            await client.send("hello")
        text = await asyncio.to_thread(read, app.metrics_address)
    assert "a2a_server_operation_duration_seconds_bucket{" in text.decode()
    assert promtool("check", "metrics", given=text) == ""
