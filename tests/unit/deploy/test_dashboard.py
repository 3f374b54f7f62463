"""The dashboard for Grafana: what it shows exists, and what exists is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from support.deployed import (
    DEPLOY,
    FOREIGN_SERIES,
    ROOT,
    annotation_queries,
    dashboard,
    family_of,
    labels_left,
    panel_queries,
    panels,
    series,
    unknown_names,
    variable_queries,
)

COLUMNS = 24


def test_every_metric_and_label_on_the_dashboard_exists() -> None:
    queries = [*panel_queries(), *annotation_queries(), *(query for query, _ in variable_queries())]
    problems = {query.place: unknown_names(query.expression, series()) for query in queries}
    assert {place: found for place, found in problems.items() if found} == {}


def test_every_metric_that_exists_is_on_the_dashboard() -> None:
    used = {family_of(selector.name) for query in panel_queries() for selector in query.expression.selectors}
    assert {family_of(name) for name in series()} - used == set()


def test_a_legend_names_labels_that_are_left() -> None:
    for query in [*panel_queries(), *annotation_queries()]:
        left = labels_left(query.expression, series())
        assert query.legend_labels - left - {"le"} == set(), query
        # Two lines with the same name are of no use.
        assert left - query.legend_labels == set(), query


def test_variables_list_labels_that_exist() -> None:
    variables = variable_queries()
    assert [query.place for query, _ in variables] == ["job", "instance", "agent"]
    for query, label in variables:
        assert [label in series()[selector.name] for selector in query.expression.selectors] == [True]


def test_every_query_looks_only_at_what_the_variables_choose() -> None:
    for query in panel_queries():
        for selector in query.expression.selectors:
            missing = {"job", "instance", "gen_ai_agent_name"} & series()[selector.name] - set(selector.labels)
            # A share of all that a server does is one of all its agents.
            assert missing <= ({"gen_ai_agent_name"} if query.legend_labels == {"instance"} else set()), query


def test_a_panel_has_a_title_of_its_own_a_description_and_a_unit() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    titles = Counter((panel["title"], panel["type"]) for panel in panels())
    assert titles.most_common(1)[0][1] == 1


def test_panels_lie_beside_each_other_and_do_not_overlap() -> None:
    everything = [panel for row in dashboard()["panels"] for panel in (row, *row.get("panels", []))]
    assert len({panel["id"] for panel in everything}) == len(everything)
    rows = [panel["panels"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    for shown in (dashboard()["panels"], *rows):
        taken: set[tuple[int, int]] = set()
        for panel in shown:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            assert place["x"] + place["w"] <= COLUMNS
            taken |= cells


def test_rows_are_those_that_operators_ask_for() -> None:
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert {"Overview", "Tasks", "Journal", "Streams and wake-ups", "Nodes", "Webhooks", "Limits", "Process"} <= {*rows}


def test_the_guide_lists_every_row_in_order() -> None:
    guide = (ROOT / "docs" / "guides" / "observing.md").read_text(encoding="utf-8").partition("| row | it shows |")[2]
    listed = re.findall(r"^\| ([A-Z].+?) \|", guide.partition("\n\n")[0], re.MULTILINE)
    assert listed == [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]


def test_the_file_is_what_its_script_writes() -> None:
    script = DEPLOY / "grafana" / "make_dashboard.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_foreign_series_are_common_to_all_targets_of_prometheus() -> None:
    assert all(name.startswith(("process_", "scrape_")) or name == "up" for name in FOREIGN_SERIES)
