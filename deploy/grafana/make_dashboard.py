"""Writes `dragoman.json`, the dashboard for Grafana: `python deploy/grafana/make_dashboard.py`, after every change.

The panels are in `panels.py`; what Grafana needs besides is added here. With `--check` nothing is written, and it fails
if the file is not what it should be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from panels import ROWS, SERVER, Panel

PAGE = Path(__file__).with_name("dragoman.json")
WIDTH = 24
HEIGHT = 8
TILE_HEIGHT = 4
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RED, YELLOW, GREEN = "red", "yellow", "green"


class Variable(NamedTuple):
    """A choice at the top of the page: the values that a label of a metric has. `every` is what "All" stands for."""

    name: str
    title: str
    source: str
    every: str


VARIABLES = [
    Variable("job", "Job", "label_values(dragoman_threads, job)", ".+"),
    Variable("instance", "Server", 'label_values(dragoman_threads{job=~"$job"}, instance)', ".+"),
    # What could not be read is nobody's: it has no agent, and belongs to all of them.
    Variable("agent", "Agent", f"label_values(a2a_server_task_in_progress{{{SERVER}}}, gen_ai_agent_name)", ".*"),
]


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        placed, bottom = _place(row.panels, top + 1)
        panels.append(
            {
                **{"type": "row", "title": row.title, "collapsed": row.collapsed},
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
                "panels": placed if row.collapsed else [],
            }
        )
        if row.collapsed:
            top += 1
        else:
            panels += placed
            top = bottom
    _number(panels)
    kinds = sorted({panel.kind for row in ROWS for panel in row.panels})
    return {
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            *({"type": "panel", "id": kind, "name": kind.capitalize(), "version": ""} for kind in kinds),
        ],
        "uid": "dragoman",
        "title": "Dragoman",
        "description": "A2A agents served by Dragoman: requests, tasks, journal, streams, nodes and webhooks.",
        "tags": ["a2a", "agents", "dragoman"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": [_takeovers()]},
        "templating": {"list": [_datasource(), *map(_variable, VARIABLES)]},
        "panels": panels,
    }


def _place(panels: Iterable[Panel], top: int) -> tuple[list[dict[str, Any]], int]:
    """Return the panels from left to right, line by line, and where the next line begins."""
    placed: list[dict[str, Any]] = []
    left = height = 0
    for panel in panels:
        if left + panel.width > WIDTH:
            left, top = 0, top + height
        height = TILE_HEIGHT if panel.kind == "stat" else HEIGHT
        position = {"x": left, "y": top, "w": panel.width, "h": height}
        placed.append({**_panel(panel), "gridPos": position})
        left += panel.width
    return placed, top + height


def _number(panels: list[dict[str, Any]]) -> None:
    numbered = [each for panel in panels for each in (panel, *panel.get("panels", []))]
    for number, panel in enumerate(numbered, 1):
        panel["id"] = number


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": {}, "color": {"mode": "palette-classic"}}
    if panel.steps is not None:
        colors = zip((GREEN, YELLOW, RED), (None, *panel.steps), strict=True)
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in colors],
        }
        defaults["color"] = {"mode": "thresholds"}
    elif panel.kind == "stat":
        defaults["color"] = {"mode": "fixed", "fixedColor": "text"}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            **{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 25 if panel.stacked else 8, "showPoints": "never"},
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return {
        **{"type": panel.kind, "title": panel.title, "description": panel.text, "datasource": DATASOURCE},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                **{"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": query.expr},
                **{"legendFormat": query.legend, "range": True, "editorMode": "code"},
                **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            **{"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "textMode": "value"},
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    if panel.kind == "heatmap":
        return {
            **{"calculate": False, "cellGap": 1, "yAxis": {"unit": panel.unit}, "legend": {"show": True}},
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
            "tooltip": {"show": True, "yHistogram": True},
        }
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _takeovers() -> dict[str, Any]:
    taken = f"dragoman_takeovers_total{{{SERVER}}}"
    return {
        **{"name": "Takeovers", "enable": True, "iconColor": RED, "datasource": DATASOURCE},
        # A series begins with its first takeover, of which `increase` knows nothing.
        "expr": f"sum by (instance) (increase({taken}[1m]) > 0 or ({taken} unless {taken} offset 1m))",
        "titleFormat": "{{instance}} has taken tasks of a process that died",
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        **{"name": variable.name, "label": variable.title, "type": "query", "datasource": DATASOURCE, "hide": 0},
        "query": {"query": variable.source, "refId": variable.name},
        **{"refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": variable.every},
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def main() -> None:
    """Write the file, or compare it."""
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif text != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE.name} is not what the panels say: python deploy/grafana/make_dashboard.py")


if __name__ == "__main__":
    main()
