"""docs/upgrading.md has this release, and the manifest for Kubernetes gives a node the time that it needs to stop."""

from __future__ import annotations

import re
from pathlib import Path

import dragoman
from dragoman.server.config.settings import Settings
from dragoman.server.listen.shutdown import FINAL_SECONDS
from dragoman.stores.postgres.sql import schema as postgres
from dragoman.stores.sqlite import schema as sqlite

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_table_of_releases_begins_with_this_one() -> None:
    rows = re.findall(r"^\| (\d[\d.]*) \| (\d+) \| (\d+) \|", (DOCS / "upgrading.md").read_text("utf-8"), re.MULTILINE)
    assert rows[0] == (dragoman.__version__, str(sqlite.VERSION), str(postgres.VERSION))


def test_kubernetes_waits_until_a_node_has_drained() -> None:
    guide = (DOCS / "guides" / "scaling.md").read_text("utf-8")
    (manifest,) = re.findall(r"^```yaml title=\"agents.yaml\"\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    numbers = {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", manifest)}
    assert numbers["terminationGracePeriodSeconds"] > numbers["seconds"] + Settings().drain + FINAL_SECONDS
    probes = dict(re.findall(r"(\w+)Probe:\n +httpGet: {path: (\S+),", manifest))
    assert probes == {"readiness": "/readyz", "liveness": "/healthz"}
