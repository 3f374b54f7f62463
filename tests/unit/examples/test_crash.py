"""The demo of a crash shows what it says it shows."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(90)  # it starts two servers, and its agent takes six seconds for its story
def test_the_crash_demo_reaches_the_end_of_its_story_over_a_kill():
    done = subprocess.run(
        [sys.executable, "-m", "dragoman.examples.crash"], capture_output=True, text=True, timeout=80, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, kill, after = done.stdout.partition("kill -9 ")
    assert kill
    assert before.rstrip().endswith("event  9  + story")
    assert after.index("event 10  = An") < after.index("event 17  + .") < after.index("event 38  completed")
