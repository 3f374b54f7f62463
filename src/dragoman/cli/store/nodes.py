"""`dragoman nodes`: the servers of a store, and what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.printing import print_json, print_table, say, utc, warn
from dragoman.cli.store.on_store import on_store
from dragoman.server.config.settings import Settings

if TYPE_CHECKING:
    from dragoman.stores.administration import Administration, NodeReport, NodeStatus

_HEADER = ("NAME", "STATE", "SEEN", "SINCE", "RUNNING", "CLAIMED", "WEBHOOKS", "VERSION", "LEASE", "AGENTS")
_COLORS = {"alive": "green", "front": "green", "late": "yellow", "dead": "red", "stopped": None}


@click.command("nodes", short_help="List the servers of a store, and what they do.")
@on_store(
    "the store is memory: it has one server, the process that it is in. For several nodes, serve with "
    "--store postgresql://…"
)
@click.option("--all", "with_dead", is_flag=True, help="Also list dead and stopped ones, which are kept for a day.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(store: Administration, _: Settings, with_dead: bool, as_json: bool) -> None:
    """List the servers of a store, and what they do. It works while they are running.

    A node is `alive`, `late` when it has not renewed its lease in time, `dead` when the others have declared it so, or
    `stopped`. A `front` is alive and runs no tasks: limits_runs is 0, or it is about to stop. RUNNING are the tasks
    that its agents work on, CLAIMED those that it is about to begin.
    """
    report = store.nodes(dead=with_dead)
    if as_json:
        print_json(_json(report))
        return
    if report.waiting is not None:
        _print_nodes(report)
    for finding in report.findings:
        (warn if finding.level == "warn" else say)(f"{finding.says}: {finding.do}" if finding.do else finding.says)


def _print_nodes(report: NodeReport) -> None:
    if report.nodes:
        print_table(
            [_HEADER, *map(_row, report.nodes)],
            [None, *(_COLORS[node.state] for node in report.nodes)],
        )
    else:
        say("no server is running")
    if report.waiting:
        say(f"{report.waiting} {'task waits' if report.waiting == 1 else 'tasks wait'} for a node")


def _row(node: NodeStatus) -> tuple[str, ...]:
    return (
        node.name,
        node.state,
        f"{node.age:.1f} s ago",
        utc(node.since_ms),
        str(node.running),
        str(node.claimed),
        str(node.webhooks),
        node.version,
        f"{node.lease:g} s",
        ", ".join(node.agents),
    )


def _json(report: NodeReport) -> dict[str, Any]:
    return {
        "nodes": [_json_node(node) for node in report.nodes],
        "waiting": report.waiting,
        "checks": [finding._asdict() for finding in report.findings],
    }


def _json_node(node: NodeStatus) -> dict[str, Any]:
    if node.pid is not None or not node.version:
        return {"state": node.state, "pid": node.pid}
    return {
        "name": node.name,
        "state": node.state,
        "seenSecondsAgo": round(node.age, 3),
        "since": utc(node.since_ms),
        "agents": list(node.agents),
        "running": node.running,
        "claimed": node.claimed,
        "webhooks": node.webhooks,
        "version": node.version,
        "schema": node.tables,
        "leaseSeconds": node.lease,
    }
