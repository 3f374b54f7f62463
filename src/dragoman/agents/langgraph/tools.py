"""Where the tools of a graph are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# What nodes for tools are called where nobody says otherwise, also in graphs that cannot be looked into.
_TOOLS = "tools"
Path = tuple[str, ...]


def tools_of(graph: Any) -> dict[str, Any]:
    """The tools of the graph's own nodes, by their names."""
    found: dict[str, Any] = {}
    for _, tools in _nodes(graph):
        found.update(tools)
    return found


def tool_places(graph: Any) -> frozenset[Path]:
    """The nodes that call tools, also those of graphs within the graph: each as the names on the way to it."""
    places = {(name,) for name, _ in _nodes(graph)}
    for way, within in graph.get_subgraphs(recurse=True):
        places |= {(*way.split("|"), name) for name, _ in _nodes(within)}
    return frozenset(places)


def is_within(place: str, places: frozenset[Path]) -> bool:
    """True when a namespace of a checkpoint is one of these places, or within one."""
    way = tuple(node.split(":")[0] for node in place.split("|"))
    return _TOOLS in way or any(way[:length] in places for length in range(1, len(way) + 1))


def _nodes(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, node in getattr(graph, "nodes", {}).items():
        tools = getattr(getattr(node, "bound", None), "tools_by_name", None)
        if isinstance(tools, dict):
            yield name, tools
