"""A real Prometheus reads real servers under load: whatever the dashboard shows exists, and moves."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from interop.prometheus_server import (
    ABSENT,
    RATE_INTERVAL,
    PrometheusServer,
    find_program,
    promtool,
    read,
    running_prometheus,
    until,
)
from interop.watched_servers import WatchedServer, load, receiver
from support.deployed import annotation_queries, dashboard, panel_queries, series, variable_queries

from dragoman import Client
from dragoman.errors import DragomanError

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_program("prometheus") is None, reason=ABSENT),
]
# It stays what it is.
CONSTANT = {"dragoman_info"}
REFUSED, TAKEN = "dragoman_journal_refused_total", "dragoman_takeovers_total"
DISK = 1_000_000


def with_variables(expr: str) -> str:
    """An expression as Grafana sends it while everything is chosen."""
    for variable in dashboard()["templating"]["list"]:
        expr = expr.replace(f"${variable['name']}", variable.get("allValue", ""))
    return expr.replace("$__rate_interval", RATE_INTERVAL)


@pytest.mark.timeout(180)
async def test_everything_on_the_dashboard_exists_and_moves(
    tmp_path: Path, postgres_url: str, subtests: pytest.Subtests
) -> None:
    async with AsyncExitStack() as stack:
        flags = ("--lease", "2", "--push-allow", "127.0.0.1", "--limits-body", "100000")
        nodes = [WatchedServer(tmp_path, name, postgres_url, "--node", name, *flags) for name in ("one", "two")]
        alone = WatchedServer(tmp_path, "alone", f"sqlite:///{tmp_path / 'tasks.db'}", "--push-allow", "127.0.0.1")
        for server in (*nodes, alone):
            stack.callback(server.end)
        targets = [server.target for server in (*nodes, alone)]
        prometheus = stack.enter_context(running_prometheus(tmp_path, targets))
        await asyncio.to_thread(until, lambda: [*prometheus.targets().values()] == ["up"] * 3, "all are scraped")
        began = time.time()
        hooks = stack.enter_context(receiver()).url
        for server in (nodes[0], alone):
            await stack.enter_async_context(load(server))
        for _ in range(2):
            # A series begins with the first of them, and with the second it has a rate.
            await asyncio.gather(trouble(nodes[0], hooks), fill_disk(alone))
            await asyncio.to_thread(until, lambda: prometheus.series(REFUSED), "the refused have been counted")
        await takeover(*nodes)
        await asyncio.to_thread(wait_for_alerts, prometheus, nodes)
        await asyncio.to_thread(check_metrics, prometheus, subtests, began)
        await asyncio.to_thread(check_panels, prometheus, subtests)
        await asyncio.to_thread(check_variables, prometheus, subtests)
        with subtests.test("names"):
            assert promtool("check", "metrics", given=await asyncio.to_thread(read, nodes[0].metrics_url)) == ""


async def trouble(server: WatchedServer, hooks: str) -> None:
    """Whatever a dashboard is for, once."""
    async with Client(server.agent("watched")) as client:
        for path in ("good", "bad", "gone"):
            await client.send("to be delivered", push=f"{hooks}/{path}")
        computing = [asyncio.ensure_future(client.call("compute", seconds=3)) for _ in range(4)]
        await client.call("relay", url=server.agent("watched"))
        await client.call("stall", seconds=1)
        with suppress(DragomanError):
            await client.send("too long" * 20_000)
        await asyncio.gather(*computing)


async def fill_disk(server: WatchedServer) -> None:
    """Let the store of a server run out of room, and come back."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (DISK, resource.RLIM_INFINITY))
    # A store without room refuses messages at once; our client would send each of them five times more.
    async with Client(server.agent("watched"), retries=0) as client:
        for _ in range(20):
            with suppress(DragomanError):
                await client.send(str(uuid4()) * 5000)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


async def takeover(survivor: WatchedServer, victim: WatchedServer) -> None:
    """Let one node die in the middle of two runs."""
    async with Client(victim.agent("calm")) as client:
        for skill in ("wait", "linger"):
            task = await client.send(tool=skill, arguments={"seconds": 2}, wait=False)
            assert not task.state.final
        victim.kill()


def wait_for_alerts(prometheus: PrometheusServer, nodes: list[WatchedServer]) -> None:
    """Wait until the alerts fire that do so at once: those of a stall, of takeovers and of a store without room."""

    def fired() -> dict[str, dict[str, str]]:
        return {labels["alertname"]: labels for labels in prometheus.alerts()}

    expected = {"DragomanLoopStalls", "DragomanTakeovers", "DragomanStoreRefuses", "DragomanWebhooksDead"}
    until(lambda: expected <= fired().keys(), f"{expected} fire")
    stall = fired()["DragomanLoopStalls"]
    assert (stall["gen_ai_agent_name"], stall["dragoman_skill"]) == ("watched", "stall")
    assert stall["instance"] == nodes[0].target
    until(lambda: prometheus.targets()[nodes[1].target] == "down", "the node that was killed is down")
    until(lambda: any(len(line.values) > 1 for line in prometheus.series(TAKEN)), "takeovers have been counted")


def check_metrics(prometheus: PrometheusServer, subtests: pytest.Subtests, began: float) -> None:
    for name in sorted(series()):
        with subtests.test("metric", name=name):
            lines = prometheus.series(name)
            assert lines, "there is no such series"
            if name not in CONSTANT:
                # All servers had been read before anything happened: what has come since has moved, too.
                assert any(len({*line.values}) > 1 or line.begins > began for line in lines), lines[0]


def check_panels(prometheus: PrometheusServer, subtests: pytest.Subtests) -> None:
    for query in (*panel_queries(), *annotation_queries()):
        with subtests.test("panel", place=query.place, legend=query.legend):
            lines = prometheus.series(with_variables(query.text))
            assert lines, f"no line: {query.text}"
            assert any(value > 0 for line in lines for value in line.values), f"only zeros: {query.text}"
            assert all(any(label in line.labels for line in lines) for label in query.legend_labels)


def check_variables(prometheus: PrometheusServer, subtests: pytest.Subtests) -> None:
    expected = {"job": {"dragoman"}, "agent": {"watched", "calm"}}
    for query, label in variable_queries():
        with subtests.test("variable", place=query.place):
            found = {line.labels[label] for line in prometheus.series(with_variables(query.text))}
            assert found == expected.get(query.place, found)
            assert found
