"""A pytest plugin that records which lines of the package every test runs, in its own process.

Coverage keeps branches or contexts cheaply, not both: the branches of thousands of tests are millions of rows. So each
test's branches are read out when it has ended: its lines are kept with its name, its branches with those of all others.
A module is imported by the first test that needs it: what an import alone runs says nothing about that test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

# The folder into which every process of the run writes.
FOLDER = "MUTANTS_CONTEXTS"
LINES = "lines"
BRANCHES = "branches"
TESTS = "tests"


class Recorder:
    """The lines and branches of one process, and the outcomes and times of its tests."""

    def __init__(self, folder: Path, source: Path) -> None:
        name = f"{os.getpid()}"
        self._coverage = Coverage(data_file=None, branch=True, include=[f"{source}/*"], config_file=False)
        # The core of newer Pythons that uses `sys.monitoring` does not start anew for each test.
        self._coverage.set_option("run:core", "ctrace")
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._lines = CoverageData(str(folder / f"{LINES}.{name}"))
        self._branches = CoverageData(str(folder / f"{BRANCHES}.{name}"))
        self._tests = folder / f"{TESTS}.{name}"
        self._seconds = 0.0
        self._is_passed = True

    def start(self) -> None:
        """Record from now on; what runs before the first test belongs to none."""
        self._coverage.start()

    def stop(self) -> None:
        """Keep what ran after the last test."""
        self._coverage.stop()
        self._keep("")
        self._branches.close()
        self._lines.close()

    def begin(self) -> None:
        """A test begins: what ran since the one before belongs to none."""
        self._keep("")
        self._seconds, self._is_passed = 0.0, True

    def end(self, name: str) -> None:
        """A test has ended."""
        self._keep(name)
        with self._tests.open("a") as file:
            print(json.dumps([name, self._is_passed, round(self._seconds, 4)]), file=file)

    def note(self, report: pytest.TestReport) -> None:
        """Add the outcome and time of one phase of the test."""
        self._seconds += report.duration
        # A test that is skipped proves nothing, and one that is expected to fail neither.
        self._is_passed &= report.passed

    def _keep(self, name: str) -> None:
        data = self._coverage.get_data()
        files = data.measured_files()
        self._branches.add_arcs({file: data.arcs(file) or [] for file in files})
        if name:
            self._lines.set_context(name)
            self._lines.add_lines({file: data.lines(file) or [] for file in files})
        data.erase()


class Hooks:
    """What pytest reports of its tests to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record one test with its fixtures."""
        self._recorder.begin()
        try:
            return (yield)
        finally:
            self._recorder.end(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome."""
        self._recorder.note(report)

    def pytest_unconfigure(self) -> None:
        """The end of the process."""
        self._recorder.stop()


def _make_recorder() -> Recorder | None:
    # Only processes in which tests run; the one that starts them is no xdist worker.
    if FOLDER not in os.environ or "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    recorder = Recorder(Path(os.environ[FOLDER]), Path(os.environ["PYTHONPATH"]) / "dragoman")
    recorder.start()
    return recorder


_recorder = _make_recorder()


def pytest_configure(config: pytest.Config) -> None:
    """Record the tests of this process."""
    if _recorder is not None:
        config.pluginmanager.register(Hooks(_recorder))
