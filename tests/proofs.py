"""After a run of the whole suite: which requirements have no test that ran and passed.

`tests/unit/test_requirements.py` reads what the files claim. What was skipped for want of a program, only a run tells.
With `PROVE_ALL_REQUIREMENTS` in the environment, as in `.ci/run`, such a run has failed.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import cast

import pytest

_PROPERTY = "requirement"
_MANIFEST = Path(__file__).with_name("requirements.toml")


def install(config: pytest.Config) -> None:
    """Watch this run, if it is one of the whole suite and this process hears of every test."""
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if is_whole and not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Proofs(list(tomllib.loads(_MANIFEST.read_text(encoding="utf-8")))), "proofs")


def note_claims(item: pytest.Item) -> None:
    """Put the requirements that a test claims into its report, which reaches the process that judges."""
    numbers = [number for mark in item.iter_markers("requirement") for number in mark.args]
    if numbers:
        item.user_properties.append((_PROPERTY, numbers))


class Proofs:
    """Collects the requirements that passed, and names those that were claimed only by tests that did not."""

    def __init__(self, numbers: list[str]) -> None:
        self._claimed: set[str] = set()
        self._proven: set[str] = set()
        self._numbers = numbers

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        numbers = {
            number for name, value in report.user_properties if name == _PROPERTY for number in cast("list[str]", value)
        }
        if report.when == "call" and report.passed:
            self._proven |= numbers
        self._claimed |= numbers

    @property
    def unproven(self) -> list[str]:
        """The requirements without a test that passed."""
        return [number for number in self._numbers if number not in self._proven]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # A run that was cut short, or of a few tests (`-m smoke`), has not tried them all.
        if not session.exitstatus and "PROVE_ALL_REQUIREMENTS" in os.environ and self._is_complete() and self.unproven:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_complete() and self.unproven:
            terminalreporter.write_line(
                f"requirements without a test that passed: {', '.join(self.unproven)}", red=True
            )

    def _is_complete(self) -> bool:
        return self._claimed == set(self._numbers)
