"""mcp-server-time: two tools, structured results."""

from __future__ import annotations

from pathlib import Path

from .server import McpServer, script
from .step import Step, without

NAME = "mcp-server-time"
now = without(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", r"Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday")
today = without(r"\d{4}-\d\d-\d\d(?=T)", r"Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday")


def steps(here: Path) -> list[Step]:
    tokyo = {"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"}
    return [
        Step("get_current_time", {"timezone": "UTC"}, now),
        Step("get_current_time", {"timezone": "Nowhere/Land"}),
        Step("convert_time", tokyo, today),
        Step("convert_time", {**tokyo, "time": "25:99"}),
    ]


SERVER = McpServer(NAME, NAME, lambda here: [script(NAME, NAME), "--local-timezone", "UTC"], steps)
