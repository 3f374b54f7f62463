"""Tries one mutation: the tests that run its lines, in a copy of the tree, until one fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

from .contexts import RUNNER, Contexts, TimedTest
from .mutations import Gone, Mutation, Place, find
from .selection import LIST
from .tree import Tree

KILLED, SURVIVED, UNCOVERED, GONE = "killed", "survived", "no covering test", "gone"
# How much is tried depends on what was recorded, not on how fast this machine is now: tests of so many seconds in all,
# at least so many of them, and never more.
_RECORDED_SECONDS = 60.0
_MIN_TESTS = 40
_MAX_TESTS = 400
# Most mutations are killed by the first tests, before hundreds of files are imported.
_FIRST = 20
_TEST_SECONDS = "30"
# What fails when a mutation keeps the tests from being imported.
_IMPORT = "the import of the tests"


class Outcome(NamedTuple):
    """What became of a mutation: the test that killed it, or how many tests it survived, and where it is now."""

    outcome: str
    file: str = ""
    line: int = 0
    test: str = ""
    tests: int = 0
    is_cut: bool = False


class Report(NamedTuple):
    """What became of a list of tests."""

    passed: int
    failed: str | None
    is_cut: bool


class Trial:
    """Mutations of one copy of the tree, one after the other."""

    def __init__(self, tree: Tree, contexts: Contexts, seconds: float) -> None:
        self._tree = tree
        self._contexts = contexts
        self._seconds = seconds

    def run(self, mutation: Mutation, known_test: str = "") -> Outcome:
        """Try a mutation; the test that killed it before is tried first."""
        try:
            place = find(self._tree.source, mutation)
        except Gone:
            return Outcome(GONE)
        outcome = Outcome(SURVIVED, place.file, place.start)
        tests = self._contexts.covering(place.file, range(place.start, place.end + 1))
        if not tests:
            return outcome._replace(outcome=UNCOVERED)
        ends = time.monotonic() + self._seconds
        for part in _parts(tests, known_test):
            report = self._try(part, ends, mutation, place)
            outcome = outcome._replace(tests=outcome.tests + report.passed, is_cut=report.is_cut)
            if report.failed is not None:
                return outcome._replace(outcome=KILLED, test=report.failed)
            if report.is_cut:
                return outcome
        return outcome

    def _try(self, tests: Sequence[TimedTest], ends: float, mutation: Mutation, place: Place) -> Report:
        left = list(tests)
        passed = 0
        while True:
            with self._tree.mutated(mutation, place):
                report = self.run_tests(left, ends)
            passed += report.passed
            if report.failed is None:
                return report._replace(passed=passed)
            failed = [test for test in left if test.name == report.failed]
            # A test that also fails without the mutation, on this machine now, does not kill it.
            alone = self.run_tests(failed or left[:1], None)
            if alone.failed is None:
                return report._replace(passed=passed)
            if alone.failed == _IMPORT:
                raise RuntimeError(f"the tests cannot be run: see {self._tree.folder.with_suffix('.log')}")
            left = left[left.index(failed[0]) + 1 :] if failed else left[1:]
            if not left:
                return Report(passed, None, False)

    def run_tests(self, tests: Sequence[TimedTest], ends: float | None) -> Report:
        """Run tests in the copy as it is now, until one fails or the time is over."""
        path = self._tree.folder.with_suffix(".json")
        path.write_text(json.dumps([test.name for test in tests]))
        written = path.with_suffix(".report.json")
        written.unlink(missing_ok=True)
        files = dict.fromkeys(test.file for test in tests)
        options = ("-x", "-q", "--tb=line", "-p", "no:xdist", "--timeout", _TEST_SECONDS)
        command = [sys.executable, RUNNER, "mutants.selection", *options, *files]
        environment = {**self._tree.environment, LIST: str(path)}
        with self._tree.folder.with_suffix(".log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=self._tree.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                process.wait(None if ends is None else max(1.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            finally:
                is_cut = process.poll() is None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        passed, failed = json.loads(written.read_text()) if written.is_file() else (0, None)
        if failed is None and process.returncode not in (0, 5) and not is_cut:
            failed = _IMPORT
        return Report(passed, failed, is_cut)


def _parts(tests: Sequence[TimedTest], known_test: str) -> list[Sequence[TimedTest]]:
    known = [test for test in tests if test.name == known_test]
    sums = list(accumulate(test.seconds for test in tests))
    count = min(max(bisect_right(sums, _RECORDED_SECONDS), _MIN_TESTS), _MAX_TESTS)
    chosen = tests[:count]
    return [part for part in (known, chosen[:_FIRST], chosen[_FIRST:]) if part]
