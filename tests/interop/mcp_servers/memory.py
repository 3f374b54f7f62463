"""server-memory: a graph that nine tools build, ask and take apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .server import McpServer, node
from .step import Step

NAME = "@modelcontextprotocol/server-memory"


def env(here: Path) -> dict[str, str]:
    return {"MEMORY_FILE_PATH": str(here / "memory.jsonl")}


def steps(here: Path) -> list[Step]:
    ada = {"name": "Ada", "entityType": "person", "observations": ["wrote a program", "naïve — ☃"]}
    engine: dict[str, Any] = {"name": "Engine", "entityType": "machine", "observations": []}
    knows = {"from": "Ada", "to": "Engine", "relationType": "programs"}
    return [
        Step("read_graph"),
        Step("create_entities", {"entities": [ada, engine]}),
        Step("create_relations", {"relations": [knows]}),
        Step("add_observations", {"observations": [{"entityName": "Engine", "contents": ["has gears"]}]}),
        Step("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["is not there"]}]}),
        Step("search_nodes", {"query": "gears"}),
        Step("open_nodes", {"names": ["Ada", "Nobody"]}),
        Step("read_graph"),
        Step("delete_observations", {"deletions": [{"entityName": "Ada", "observations": ["wrote a program"]}]}),
        Step("delete_relations", {"relations": [knows]}),
        Step("delete_entities", {"entityNames": ["Engine"]}),
        Step("read_graph"),
    ]


SERVER = McpServer(NAME, "mcp-js", lambda here: node("server-memory"), steps, env=env)
