"""The nodes of a store, for `dragoman nodes` and `dragoman doctor`. Nothing is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from dragoman.net.postgres import PostgresConnection
from dragoman.stores.administration import HealthFinding, NodeReport, NodeState, NodeStatus

# How long ago a node was seen is told by the database's clock, which wrote that time. `tables` and `runs` are read as
# JSON because a database that no newer node has migrated yet does not have the columns.
_NODES = """
SELECT n.name, n.dead, n.stopped, n.version, n.agents, n.lease, n.keys,
    extract(epoch FROM clock_timestamp() - n.seen)::float8 AS age,
    (extract(epoch FROM n.joined) * 1000)::bigint AS since_ms,
    (SELECT count(*) FROM tasks t WHERE t.owner = n.id AND t.begun) AS running,
    (SELECT count(*) FROM tasks t WHERE t.owner = n.id AND NOT t.begun) AS claimed,
    (SELECT count(*) FROM pushes w WHERE w.owner = n.id AND w.state = 0) AS webhooks,
    coalesce((to_jsonb(n) ->> 'tables')::int, 1) AS tables,
    coalesce((to_jsonb(n) ->> 'runs')::boolean, true) AS runs
FROM nodes n WHERE NOT n.dead OR $1 ORDER BY n.name, n.joined
"""
_QUEUE = "SELECT count(*) FROM tasks WHERE state IN (1, 2) AND owner IS NULL"
_UNFINISHED = (
    "SELECT agent, count(*) FROM tasks WHERE state IN (1, 2) AND agent IS NOT NULL GROUP BY agent ORDER BY agent"
)


async def list_nodes(connection: PostgresConnection, *, dead: bool = False) -> list[NodeStatus]:
    """The nodes that were not declared dead, by name; with `dead` also those that were."""
    return [_node(row) for row in await connection.fetch(_NODES, dead)]


async def report_nodes(connection: PostgresConnection, *, dead: bool = False) -> NodeReport:
    """The nodes, what waits for one of them, and what is wrong."""
    nodes = await list_nodes(connection, dead=dead)
    findings = (*check_fleet(nodes), *await find_unserved(connection, nodes))
    return NodeReport(tuple(nodes), await connection.fetchval(_QUEUE), findings)


async def find_unserved(connection: PostgresConnection, nodes: Sequence[NodeStatus]) -> list[HealthFinding]:
    """Check that every agent with unfinished tasks has a node that serves it."""
    return list(check_served(dict(await connection.fetch(_UNFINISHED)), nodes))


def _node(row: Any) -> NodeStatus:
    name, dead, stopped, version, agents, lease, keys, age, *rest, runs = row
    state: NodeState = "alive"
    if dead:
        state = "stopped" if stopped else "dead"
    elif age > lease:  # it does not count on its lease any more
        state = "late"
    elif not runs:
        state = "front"
    return NodeStatus(name, state, version, tuple(agents), lease, tuple(keys), max(age, 0.0), *rest)


def check_fleet(nodes: Sequence[NodeStatus]) -> Iterator[HealthFinding]:
    """Check whether the nodes fit each other: names, secrets, leases and versions."""
    alive = [node for node in nodes if node.state in ("alive", "front")]
    # The conversations of a name are no matter of a front, which may be about to leave its name to another node.
    names = [node.name for node in alive if node.state == "alive"]
    for name in sorted({name for name in names if names.count(name) > 1}):
        do = "give each a name of its own with --node: the conversations of programs belong to a name"
        yield HealthFinding("warn", "nodes", f"{names.count(name)} nodes are called {name}", do)
    lacking = sorted({node.name for node in alive if any(_lacks_key(node, other) for other in alive)})
    if lacking:
        says = f"{', '.join(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} the secret of another node"
        yield HealthFinding("warn", "nodes", says, "set the same DRAGOMAN_SECRET on all nodes")
    leases = sorted({node.lease for node in alive})
    if len(leases) > 1:
        says = f"their leases are {' and '.join(f'{lease:g} s' for lease in leases)}: the longest counts"
        yield HealthFinding("warn", "nodes", says, "set the same lease on all nodes")
    newest = max((node.version for node in alive), key=_release, default="")
    older = sorted(node.name for node in alive if node.version != newest)
    if older:
        says = f"an update is under way: {len(alive) - len(older)} of {len(alive)} nodes on {newest}"
        yield HealthFinding("warn", "nodes", says, f"update the others: {', '.join(older)}")


def _lacks_key(node: NodeStatus, other: NodeStatus) -> bool:
    """True when a node cannot read what another one encrypts."""
    return bool(node.keys and other.keys) and other.keys[0] not in node.keys


def check_served(unfinished: dict[str, int], nodes: Sequence[NodeStatus]) -> Iterator[HealthFinding]:
    """Check that every agent with unfinished tasks has a node that serves it. `unfinished` counts them by agent."""
    served = {agent for node in nodes if node.state == "alive" for agent in node.agents}
    for agent, tasks in unfinished.items():
        if agent not in served:
            says = f"no node serves {agent}, which has {tasks} unfinished {'task' if tasks == 1 else 'tasks'}"
            yield HealthFinding("warn", "nodes", says, "start a node with this agent")


def _release(version: str) -> tuple[list[int], str]:
    """The order of versions: by their numbers."""
    return [int(number) for number in re.findall(r"\d+", version)], version
