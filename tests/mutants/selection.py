"""A pytest plugin that runs listed tests in the order of the list, and writes down what became of them."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

# The file with the names of the tests; the report is put beside it.
LIST = "MUTANTS_TESTS"
# A mutation may read or write for ever. No process of the tests needs as much.
_MEMORY = 6 << 30


class Selection:
    """The tests of one list."""

    def __init__(self, path: Path) -> None:
        names: list[str] = json.loads(path.read_text())
        self._ranks = {name: rank for rank, name in enumerate(names)}
        self._report = path.with_suffix(".report.json")
        self._passed = 0
        self._failed: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the listed tests, in the order of the list."""
        items[:] = [item for item in items if item.nodeid in self._ranks]
        items.sort(key=lambda item: self._ranks[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that passed, and keep the first that did not."""
        if report.failed:
            self._failed = self._failed or report.nodeid
        elif report.when == "teardown" and self._failed is None:
            self._passed += 1
        # Written each time: a run whose time is over is ended at once.
        self._report.write_text(json.dumps([self._passed, self._failed]))


def pytest_configure(config: pytest.Config) -> None:
    """Run the list that the environment names."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.RLIM_INFINITY))
    config.pluginmanager.register(Selection(Path(os.environ[LIST])))
