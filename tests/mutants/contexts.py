"""Which tests run which lines, recorded once per tree, and how long each test takes.

A line that only runs in processes that tests start is not seen: those are the tests' callers, not the tests.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

from .recorder import BRANCHES, FOLDER, LINES, TESTS
from .tree import DATA, Tree

# The tests of `make test`. Traced and beside other work, they take longer.
SUITE = ("-m", "not interop and not cluster and not soak and not typing and not console", "--timeout", "120")
RUNNER = Path(__file__).with_name("suite.py")


class TimedTest(NamedTuple):
    """A test that passes, and the seconds it took when it was recorded."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        """The file it is in."""
        return self.name.partition("::")[0]


class Contexts:
    """The recorded lines of the tests that passed."""

    def __init__(self, folder: Path) -> None:
        outcomes: list[tuple[str, bool, float]] = json.loads((folder / TESTS).read_text())
        self.passed = {name: TimedTest(name, seconds) for name, is_passed, seconds in outcomes if is_passed}
        self.failed = sorted({name for name, _, _ in outcomes} - set(self.passed))
        self._lines = CoverageData(str(folder / LINES))
        self._lines.read()
        self._files = {name.rpartition("/src/dragoman/")[2]: name for name in self._lines.measured_files()}

    def covering(self, file: str, lines: Iterable[int]) -> list[TimedTest]:
        """The tests that run a line of a file: of each file of tests the fastest first, then the next of each."""
        if file not in self._files:
            return []
        contexts = self._lines.contexts_by_lineno(self._files[file])
        names = {name for line in lines for name in contexts.get(line, [])}
        by_file: defaultdict[str, list[TimedTest]] = defaultdict(list)
        for test in sorted((self.passed[name] for name in names if name in self.passed), key=lambda each: each.seconds):
            by_file[test.file].append(test)
        ranked = [(rank, test.seconds, test) for tests in by_file.values() for rank, test in enumerate(tests)]
        return [test for _, _, test in sorted(ranked)]


def record(tree: Tree, folder: Path, jobs: int) -> None:
    """Run the suite in a copy of the tree, and what failed of it once more: time is short for a test that is traced."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(tree, folder, "-n", str(jobs), "--dist", "worksteal", *SUITE)
    failed = folder / "failed"
    failed.write_text("\n".join(name for name, is_passed, _ in _outcomes(folder) if not is_passed))
    if failed.stat().st_size:
        _run(tree, folder, "-n", "1", *SUITE, f"@{failed}")
    join(folder)


def join(folder: Path) -> None:
    """Join what the processes of the run have written."""
    for name in (LINES, BRANCHES):
        joined = CoverageData(str(folder / name))
        joined.erase()
        for path in sorted(folder.glob(f"{name}.*")):
            part = CoverageData(str(path))
            part.read()
            joined.update(part)
            part.close()
            path.unlink()
        joined.close()
    (folder / TESTS).write_text(json.dumps(_outcomes(folder)))
    for path in folder.glob(f"{TESTS}.*"):
        path.unlink()


def is_recorded(folder: Path) -> bool:
    """Whether a run has got to its end."""
    return (folder / TESTS).is_file()


def _outcomes(folder: Path) -> list[tuple[str, bool, float]]:
    """The last outcome of each test."""
    paths = sorted(folder.glob(f"{TESTS}.*"), key=lambda path: path.stat().st_mtime)
    outcomes = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return list({name: (name, is_passed, seconds) for name, is_passed, seconds in outcomes}.values())


def _run(tree: Tree, folder: Path, *arguments: str) -> None:
    command = [sys.executable, RUNNER, "mutants.recorder", "-q", "--tb=line", "-rfE", *arguments]
    environment = {**tree.environment, FOLDER: str(folder)}
    # A shell that starts this in the background has it ignore Ctrl-C, which the tests of Ctrl-C would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with (DATA / "contexts.log").open("a") as log:
        subprocess.run(command, cwd=tree.folder, env=environment, stdout=log, stderr=log, check=False)
