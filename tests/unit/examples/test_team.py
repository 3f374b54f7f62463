"""The team of three agents runs with one command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.installation import install_line


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # With the settings of whoever runs the tests it would listen or store elsewhere.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAGOMAN_")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.timeout(60)  # as long as the example may take
def test_each_of_the_three_says_its_part_in_order_and_the_example_ends(tmp_path: Path) -> None:
    done = run("-m", "dragoman.examples.team", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    output = done.stdout.split("you: A few days in Lisbon, please.")[1]
    assert re.findall(r"^(\w+): (.*?) *$", output, re.MULTILINE) == [
        ("planner", "Let us stay 3 days. The hotel is 240 euros, the train 60 euros."),
        (
            "guide",
            "Day 1: a walk through the old town. Day 2: a boat on the river for 12 euros. "
            "Day 3: the museum of tiles for 8 euros.",
        ),
        ("bookkeeper", "240 + 60 + 12 + 8 = 320 euros."),
    ]
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("missing", ["google.adk", "mcp"])
def test_without_an_extra_it_says_what_to_install(missing: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from dragoman.examples.team import main; main()"
    done = run("-c", code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert install_line("adk", "mcp") in done.stderr
    assert "Traceback" not in done.stderr
